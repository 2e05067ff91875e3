// Components, hooks, and templates for them.
export { h, render, createContext, Fragment } from "preact";
export * from "preact/hooks";
export { html } from "htm/preact";
