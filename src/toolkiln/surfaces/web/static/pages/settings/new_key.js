// The form that creates an API key.
import { useWho } from "../../app.js";
import { api } from "../../api.js";
import { html, useState } from "../../lib.js";
import { Button, Dialog, Field, Trouble } from "../../parts.js";
import { PRIVILEGES } from "./privileges.js";

const USUAL_DAYS = 90;

export function NewKey({ onMade, onClose }) {
  const who = useWho();
  const [isEndless, setEndless] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const make = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      onMade(await api.post("/v1/keys", wanted(new FormData(event.target))));
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  const problem = (name) =>
    error?.errors.find(({ place }) => place.startsWith(`body.${name}`))?.message;
  const field = (name, label, hint, control) => html`
    <${Field} label=${label} hint=${hint} problem=${problem(name)}>${(attributes) => html`
      <input ...${attributes} name=${name} ...${control} />`}</${Field}>`;
  return html`
    <${Dialog} title="Create key" onClose=${onClose}>
      <form class="stack" onSubmit=${make}>
        <div class="two">
          ${field("name", "Name", "A name for the key.", {
            required: true, maxlength: 100, autofocus: true,
          })}
          ${field("user_id", "User", "The user it acts for.", { required: true, maxlength: 200 })}
          ${field("groups", "Groups", "Separated by commas.", {})}
          ${field("tools", "Tools", "Patterns such as look_*, separated by commas.", {
            value: "*", required: true,
          })}
        </div>
        <fieldset><legend>Privileges</legend>
          ${Object.entries(PRIVILEGES).filter(([name]) => who.may(name))
            .map(([name, words]) => html`
              <label key=${name} class="choice">
                <input type="checkbox" name="privileges" value=${name} />
                <span><code>${name}</code> <span class="hint">${words}</span></span></label>`)}
        </fieldset>
        <div class="two">
          ${field("days", "Valid for days", "", {
            type: "number", min: 1, max: 3650, value: USUAL_DAYS, required: !isEndless,
            disabled: isEndless,
          })}
          <label class="choice"><input type="checkbox" checked=${isEndless}
            onChange=${(event) => setEndless(event.target.checked)} />
            <span>Until it is revoked</span></label>
        </div>
        ${error && html`<${Trouble} error=${error} />`}
        <div class="row end">
          <${Button} onClick=${onClose}>Cancel</${Button}>
          <${Button} kind="primary" type="submit" icon="key-round"
            busy=${isBusy}>Create key</${Button}>
        </div>
      </form>
    </${Dialog}>`;
}

function wanted(given) {
  const days = given.get("days"); // missing if the field is disabled
  return {
    name: given.get("name").trim(),
    user_id: given.get("user_id").trim(),
    groups: parts(given.get("groups")),
    tools: parts(given.get("tools")),
    privileges: given.getAll("privileges"),
    days: days ? Number(days) : null,
  };
}

function parts(text) {
  return text.split(",").map((part) => part.trim()).filter(Boolean);
}
