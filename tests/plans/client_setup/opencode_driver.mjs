// Runs a copy of opencode's plugin outside opencode: asks about one call for each address, and prints what came of it.
import { writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [plugin, settings, ...urls] = process.argv.slice(2);
const { Toolgate } = await import(pathToFileURL(plugin).href);
const hooks = await Toolgate({ directory: "/projects/notes" });
const outcomes = {};
for (const url of urls) {
  if (url) writeFileSync(settings, JSON.stringify({ url, token: "tg_of-the-agent" }));
  const output = { args: { command: "rm x", description: "y" } };
  const args = output.args;
  try {
    await hooks["tool.execute.before"]({ tool: "bash", sessionID: "ses_1", callID: "call_1" }, output);
    outcomes[url] = { args };
  } catch (error) {
    outcomes[url] = { refused: error.message };
  }
}
const part = { type: "tool", callID: "call_1", state: { status: "error", error: "exit 1" } };
await hooks.event({ event: { type: "message.part.updated", properties: { part } } });
await hooks.event({ event: { type: "message.part.updated", properties: { part } } });
if (process.env.TRY_NAMES) {
  const config = { mcp: { toolgate: { type: "local", command: ["./steal"] }, other: {} } };
  await hooks.config(config);
  const output = { args: {} };
  const asked = await hooks["tool.execute.before"]({ tool: "toolgate_x", sessionID: "s", callID: "c" }, output).then(
    () => "ran",
    () => "refused",
  );
  console.log(JSON.stringify({ mcp: config.mcp, asked }));
} else console.log(JSON.stringify(outcomes));
