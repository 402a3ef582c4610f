// Asks Toolgate before opencode runs one of its own tools, and reports the run afterwards.
// `manage.py connect opencode` writes this file. Only a well-formed answer that allows lets a tool run: on any doubt
// the plugin throws, and opencode does not run the tool. Address and token are in toolgate/toolgate.json beside it, and
// the `proxy` and the file of `certificates` to trust, if there are any: opencode's environment decides neither.
import { readFileSync } from "node:fs";

const SECONDS = 590;
const SETTINGS = new URL("../toolgate/toolgate.json", import.meta.url);
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const settings = () => JSON.parse(readFileSync(SETTINGS, "utf8"));

// opencode's runtime sends requests through a proxy of the environment, and has no switch that turns this off in all its
// versions. That proxy would get the token, and could answer in Toolgate's place.
const isProxied = ({ protocol, hostname }) => {
  const { http_proxy, HTTP_PROXY, https_proxy, HTTPS_PROXY, no_proxy, NO_PROXY } = process.env;
  const proxy = protocol === "https:" ? https_proxy || HTTPS_PROXY : http_proxy || HTTP_PROXY;
  const direct = (no_proxy ?? NO_PROXY ?? "").split(",").map((host) => host.trim());
  return Boolean(proxy) && !direct.includes(hostname) && !direct.includes("*");
};

const post = async (body) => {
  const { url, token, proxy, certificates } = settings();
  if (!proxy && isProxied(new URL(url)))
    throw new Error("the environment names a proxy; name it in toolgate.json, or Toolgate's host in NO_PROXY");
  const response = await fetch(`${url.replace(/\/+$/, "")}/api/v1/hooks/opencode/`, {
    method: "POST",
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify(body),
    redirect: "error",
    signal: AbortSignal.timeout(SECONDS * 1000),
    timeout: false,
    ...(proxy && { proxy }),
    tls: { rejectUnauthorized: true, ...(certificates && { ca: readFileSync(certificates, "utf8") }) },
  });
  const text = await response.text();
  if (response.status !== 200) {
    let detail = "";
    try {
      detail = JSON.parse(text).detail ?? "";
    } catch {}
    throw new Error(`Toolgate answered ${response.status}. ${detail}`);
  }
  if ((response.headers.get("content-type") ?? "").split(";")[0].trim() !== "application/json")
    throw new Error("its address answers with something else than JSON");
  return JSON.parse(text);
};

const ask = async (body) => {
  let answer;
  try {
    answer = await post(body);
  } catch (error) {
    throw new Error(`Toolgate could not be asked: ${error?.message}. The tool was not run.`);
  }
  if (!isObject(answer) || answer.decision !== "allow" || !isObject(answer.args))
    throw new Error((isObject(answer) && answer.message) || "Refused: Toolgate's answer holds no decision.");
  return answer.args;
};

const report = async (body) => {
  for (let attempt = 0; attempt < 3; attempt++) {
    try {
      return await post(body);
    } catch {
      await new Promise((done) => setTimeout(done, attempt * 1000));
    }
  }
};

export const Toolgate = async ({ directory }) => {
  const asked = new Map(); // by call id: the call, until its end is reported
  return {
    config: async (config) => {
      try {
        const { url, token } = settings();
        const headers = { Authorization: `Bearer ${token}` };
        const toolgate = { type: "remote", url: `${url}/mcp`, headers, oauth: false, enabled: true };
        config.mcp = { ...config.mcp, toolgate }; // the last one wins: a project might give the name to another server
      } catch {} // thrown here, it might unload the plugin; without settings every tool is refused
    },
    "tool.execute.before": async (input, output) => {
      const args = await ask({ hook_event_name: "tool.execute.before", input, output: { args: output.args }, directory });
      for (const name of Object.keys(output.args)) delete output.args[name];
      Object.assign(output.args, args);
      asked.set(input.callID, { ...input, args });
    },
    "tool.execute.after": async (input, output) => {
      asked.delete(input.callID);
      await report({ hook_event_name: "tool.execute.after", input, output, directory });
    },
    // A tool that fails ends without `after`.
    event: async ({ event }) => {
      const part = event.type === "message.part.updated" ? event.properties.part : undefined;
      if (part?.type !== "tool" || part.state.status !== "error" || !asked.has(part.callID)) return;
      const input = asked.get(part.callID);
      asked.delete(part.callID);
      await report({ hook_event_name: "tool.execute.error", input, error: String(part.state.error), directory });
    },
  };
};
