/** Bundles `bindings-page.jsx`. Usage: node bindings-build.mjs OUTFILE */

import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";
import { compile, compileModule } from "svelte/compiler";
import { compile as compile4 } from "svelte-4/compiler";

const here = dirname(fileURLToPath(import.meta.url));
const source = join(here, "..", "..", "client_tools", "js", "src");

/** @type {import("esbuild").Plugin} */
const svelte = {
  name: "svelte",
  setup({ onLoad }) {
    onLoad({ filter: /\.svelte(\.js)?$/ }, async ({ path }) => {
      const text = await readFile(path, "utf8");
      if (path.endsWith("-4.svelte")) {
        return { contents: compile4(text, { filename: path, sveltePath: "svelte-4" }).js.code };
      }
      const translate = path.endsWith(".js") ? compileModule : compile;
      return { contents: translate(text, { filename: path, generate: "client" }).js.code };
    });
  },
};

await build({
  entryPoints: [join(here, "bindings-page.jsx")],
  outfile: process.argv[2],
  bundle: true,
  format: "iife",
  jsx: "automatic",
  conditions: ["browser", "svelte"],
  alias: {
    "passback/react": join(source, "react.js"),
    "passback/vue": join(source, "vue.js"),
    "passback/svelte": join(source, "svelte.js"),
    passback: join(source, "index.js"),
  },
  nodePaths: [join(here, "node_modules")],
  define: {
    "process.env.NODE_ENV": '"development"',
    __VUE_OPTIONS_API__: "false",
    __VUE_PROD_DEVTOOLS__: "false",
    __VUE_PROD_HYDRATION_MISMATCH_DETAILS__: "false",
  },
  plugins: [svelte],
});
