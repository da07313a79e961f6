// Runs core.py in Pyodide, without a page: node core.mjs PYODIDE PACKAGES REPOSITORY
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { readFileSync } from "node:fs";

const [pyodide, packages, repository] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));
const { loadPyodide } = await import(pathToFileURL(join(pyodide, "pyodide.mjs")).href);
const python = await loadPyodide({ indexURL: pyodide });
for (const [place, folder] of Object.entries({ "/repository": repository, "/packages": packages, "/stand_ins": join(here, "stand_ins") }))
  python.mountNodeFS(place, folder);
python.runPython("import sys; sys.dont_write_bytecode = True; sys.path[:0] = ['/repository', '/packages', '/stand_ins']");
try {
  await python.runPythonAsync(readFileSync(join(here, "core.py"), "utf8"), { filename: "core.py" });
} catch (error) {
  console.log(error.message); // without Pyodide's own source, which node would show
  process.exit(1);
}
process.exit(0); // timers of runs may still be set
