// Where the page begins.
import { mount } from "svelte";
import "./app.css";
import App from "./App.svelte";
import { applyTheme } from "./theme";

applyTheme();
mount(App, { target: document.getElementById("app")! });
