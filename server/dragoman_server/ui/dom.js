// Elements from templates. Texts become text nodes: nothing here or in the views sets HTML.

import htm from "./vendor/htm.mjs";
import { Component, createRef, h, render } from "./vendor/preact.mjs";

export const html = htm.bind(h);
export { Component, createRef, render };
