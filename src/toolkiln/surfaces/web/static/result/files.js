// Files that a tool sent: downloads and pictures. None is ever opened as
// a document: saved ones have no type that a browser would run, and pictures only go into <img>.
import { html, useEffect, useMemo, useState } from "../lib.js";
import { Icon } from "../parts.js";
import { Shown } from "./text.js";

const PICTURES = {
  __proto__: null,
  gif: "image/gif",
  jpeg: "image/jpeg",
  jpg: "image/jpeg",
  png: "image/png",
  svg: "image/svg+xml",
  webp: "image/webp",
};
const UNITS = ["bytes", "kB", "MB", "GB"];

export function Files({ files }) {
  return html`<ul class="files">
    ${files.map((file, at) => html`<li key=${at}><${File} file=${file} /></li>`)}</ul>`;
}

function File({ file }) {
  const bytes = useMemo(() => bytesOf(file.data), [file]);
  const name = safeName(file.name);
  const picture = PICTURES[name.slice(name.lastIndexOf(".") + 1).toLowerCase()];
  const saved = useBlob(bytes, "application/octet-stream");
  const seen = useBlob(picture ? bytes : null, picture);
  const [isBroken, setBroken] = useState(false);
  if (!bytes) return html`<p><${Shown} text=${name} />: the content cannot be read</p>`;
  return html`
    <figure>
      ${seen && !isBroken && html`<img src=${seen} alt=${name} onError=${() => setBroken(true)} />`}
      <figcaption>
        <a class="button" href=${saved} download=${name}>
          <${Icon} name="download" /><${Shown} text=${name} /></a>
        <span class="muted">${sizeOf(bytes.length)}</span>
        ${isBroken && html`<span class="muted">cannot be shown as a picture</span>`}
      </figcaption>
    </figure>`;
}

/* The server uses URL-safe base64. */
function bytesOf(text) {
  try {
    const plain = text.replaceAll("-", "+").replaceAll("_", "/");
    return Uint8Array.from(atob(plain), (character) => character.charCodeAt(0));
  } catch {
    return null;
  }
}

/* The last part of a path, without characters that reverse text or cannot be in a name. */
function safeName(name) {
  const last = String(name).split(/[\\/]/).pop();
  const plain = last.replace(
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what a name may not have
    /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff<>:"|?*]/g,
    "_",
  );
  return plain.slice(-200) || "file";
}

/* An object URL for bytes, revoked when the component unmounts. */
function useBlob(bytes, type) {
  const [address, setAddress] = useState(null);
  useEffect(() => {
    if (!bytes) return undefined;
    const made = URL.createObjectURL(new Blob([bytes], { type }));
    setAddress(made);
    return () => URL.revokeObjectURL(made);
  }, [bytes, type]);
  return address;
}

export function sizeOf(count) {
  const power = count < 1_000 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log10(count) / 3));
  const shown = count / 1_000 ** power;
  const digits = { maximumFractionDigits: shown < 10 && power ? 1 : 0 };
  return `${shown.toLocaleString(undefined, digits)} ${UNITS[power]}`;
}
