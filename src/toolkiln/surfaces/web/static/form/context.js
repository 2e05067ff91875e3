// Context of a form: the root schema, problems by path, and element ids.
import { createContext, html, useContext } from "../lib.js";
import { keyOf } from "./values.js";

export const FormContext = createContext(null);

export function useForm() {
  return useContext(FormContext);
}

/* The element id for a path; encoded, since spaces would end it in aria-describedby. */
export function elementOf(form, path) {
  return [form.id, ...path.map((step) => encodeURIComponent(step))].join("-");
}

/* The problems at a path that the form already shows. */
export function wrongAt(form, path) {
  const problems = form.problems.get(keyOf(path)) ?? [];
  return problems.filter(({ isMissing }) => !isMissing || form.isShown(path));
}

/* Attributes that tie a control to its label, hint and problems. */
export function tied(form, path, { hint } = {}) {
  const id = elementOf(form, path);
  const isWrong = wrongAt(form, path).length > 0;
  const about = [hint && `${id}-hint`, isWrong && `${id}-problem`].filter(Boolean).join(" ");
  return {
    id,
    "aria-describedby": about || undefined,
    "aria-invalid": isWrong ? "true" : undefined,
  };
}

export function Problems({ path }) {
  const form = useForm();
  const wrong = wrongAt(form, path);
  if (!wrong.length) return null;
  return html`<div class="problem" id=${`${elementOf(form, path)}-problem`}>
    ${wrong.map(({ message }) => html`<p>${sentence(message)}</p>`)}</div>`;
}

function sentence(message) {
  return message.charAt(0).toUpperCase() + message.slice(1);
}
