// Components, hooks and templates: the only import of Preact and htm.
export {
  createContext, Fragment, h, html, render, useCallback, useContext, useEffect, useId,
  useLayoutEffect, useMemo, useReducer, useRef, useState,
} from "./vendor/preact.js";
