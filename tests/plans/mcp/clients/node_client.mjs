// A client of Node as a process of one test: `node node_client.mjs MODULES KIND URL TOKEN`, where KIND is `typescript`,
// `ai_sdk` or `mcp_remote`. Prints the names of the tools; then, for each line {"name", "arguments"} of its input, the
// result as the client returns it, or {"error"} with what it throws.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [, , modules, kind, url, token] = process.argv;
const require = createRequire(`${modules}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const headers = { Authorization: `Bearer ${token}` };

async function sdk(transport) {
  const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
  const client = new Client({ name: "toolgate-tests", version: "1" });
  await client.connect(transport);
  const { tools } = await client.listTools();
  return [tools.map((tool) => tool.name), (name, args) => client.callTool({ name, arguments: args })];
}

const clients = {
  async typescript() {
    const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");
    return sdk(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  },
  async mcp_remote() {
    const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");
    const proxy = `${modules}/mcp-remote/dist/proxy.js`;
    const args = [proxy, url, "--allow-http", "--header", `Authorization: Bearer ${token}`];
    return sdk(new StdioClientTransport({ command: process.execPath, args, env: process.env, stderr: "ignore" }));
  },
  async ai_sdk() {
    const { createMCPClient } = await load("@ai-sdk/mcp");
    const client = await createMCPClient({ transport: { type: "http", url, headers } });
    const tools = await client.tools();
    return [Object.keys(tools), (name, args) => tools[name].execute(args, { toolCallId: "1", messages: [] })];
  },
};

const [names, call] = await clients[kind]();
console.log(JSON.stringify(names));
for await (const line of createInterface({ input: process.stdin })) {
  const { name, arguments: args } = JSON.parse(line);
  try {
    console.log(JSON.stringify(await call(name, args)));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error) }));
  }
}
process.exit(0);
