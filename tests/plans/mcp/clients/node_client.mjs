// A client of Node as a process of one test: `node node_client.mjs MODULES KIND URL TOKEN`, where KIND is `typescript`,
// `typescript_2` (the two versions of the SDK), `ai_sdk` or `mcp_remote`. Those of the SDK sign in if the token is
// empty: BROWSER is the command that opens an address. Prints the names of the tools; then, for each line
// {"name", "arguments"} of its input, the result as the client returns it, or {"error"} with what it throws.

import { execFile } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const [, , modules, kind, url, token] = process.argv;
const require = createRequire(`${modules}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const headers = { Authorization: `Bearer ${token}` };

async function sdk(client, transport) {
  await client.connect(transport);
  const { tools } = await client.listTools();
  return [tools.map((tool) => tool.name), (name, args) => client.callTool({ name, arguments: args })];
}

// Returns a provider of tokens that keeps them, and a function that returns the query with which the browser came back.
async function signingIn() {
  const kept = {};
  const server = createServer((request, response) => {
    kept.query = new URL(request.url, "http://localhost").searchParams;
    response.end();
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const redirectUrl = `http://127.0.0.1:${server.address().port}/callback`;
  const [browser, ...before] = process.env.BROWSER.split(" ");
  const keep = (name) => (value) => {
    kept[name] = value;
  };
  const provider = {
    redirectUrl,
    clientMetadata: { client_name: "TypeScript", redirect_uris: [redirectUrl] },
    clientInformation: () => kept.client,
    saveClientInformation: keep("client"),
    tokens: () => kept.tokens,
    saveTokens: keep("tokens"),
    codeVerifier: () => kept.verifier,
    saveCodeVerifier: keep("verifier"),
    discoveryState: () => kept.discovered,
    saveDiscoveryState: keep("discovered"),
    redirectToAuthorization: (address) => promisify(execFile)(browser, [...before, String(address)]),
  };
  return [provider, () => kept.query];
}

async function typescript(Client, Transport) {
  const client = () => new Client({ name: "toolgate-tests", version: "1" });
  const transport = (options) => new Transport(new URL(url), options);
  if (token) return sdk(client(), transport({ requestInit: { headers } }));
  const [authProvider, answer] = await signingIn();
  const first = transport({ authProvider });
  await client()
    .connect(first)
    .catch((error) => {
      if (!answer()) throw error;
    });
  await first.finishAuth(answer().get("code"), answer().get("iss"));
  return sdk(client(), transport({ authProvider }));
}

const clients = {
  async typescript() {
    const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");
    return typescript(Client, StreamableHTTPClientTransport);
  },
  async typescript_2() {
    const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");
    return typescript(Client, StreamableHTTPClientTransport);
  },
  async mcp_remote() {
    const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
    const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");
    const proxy = `${modules}/mcp-remote/dist/proxy.js`;
    const args = [proxy, url, "--allow-http", "--header", `Authorization: Bearer ${token}`];
    const transport = new StdioClientTransport({ command: process.execPath, args, env: process.env, stderr: "ignore" });
    return sdk(new Client({ name: "toolgate-tests", version: "1" }), transport);
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
