// Runs a script beside this one in Pyodide, without a page: node run.mjs SCRIPT PYODIDE PACKAGES REPOSITORY
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { readFileSync } from "node:fs";

const [script, pyodide, packages, repository] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));
const { loadPyodide } = await import(pathToFileURL(join(pyodide, "pyodide.mjs")).href);
const python = await loadPyodide({ indexURL: pyodide });
for (const [place, folder] of Object.entries({ "/repository": repository, "/packages": packages, "/stand_ins": join(here, "stand_ins") }))
  python.mountNodeFS(place, folder);
python.runPython("import sys; sys.dont_write_bytecode = True; sys.path[:0] = ['/repository', '/packages', '/stand_ins']");
try {
  await python.runPythonAsync(readFileSync(join(here, script), "utf8"), { filename: script });
} catch (error) {
  console.log(error.message); // without Pyodide's own source, which node would show
  process.exit(1);
}
process.exit(0); // timers of runs may still be set
