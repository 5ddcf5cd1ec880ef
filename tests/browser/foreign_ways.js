/**
 * The ways in which a page reaches for another site. Each is asked with a query that names it, and
 * gives what it could read: "" for nothing.
 */
(target, id) => {
  const at = (path, way) => `${target}${path}?way=${encodeURIComponent(way)}`;
  const history = (way) => at(`/conversations/${id}/messages`, way);
  const send = (way) => at("/send-message", way);
  const post = {
    messages: [{ role: "user", content: "written by a foreign page" }],
    conversationId: id,
  };
  const json = JSON.stringify(post);

  const text = (promise) =>
    promise
      .then((answer) => answer.text())
      .then(
        (body) => (body ? "read" : ""),
        () => "",
      );
  const get = (url, options) => text(fetch(url, options));
  const write = (url, type, options) =>
    get(url, { method: "POST", headers: { "Content-Type": type }, body: json, ...options });

  /** An element that asks for something: done when it has loaded, or could not. */
  const element = (name, properties, look = () => "") =>
    new Promise((resolve) => {
      const made = Object.assign(document.createElement(name), properties);
      made.onload = () => resolve(look(made));
      made.onerror = () => resolve("");
      document.body.append(made);
    });
  const script = (properties) => element("script", properties, () => globalThis.read ?? "");
  const inside = (frame) => {
    try {
      return frame.contentDocument?.body ? "read" : "";
    } catch {
      return "";
    }
  };

  /** A form whose answer goes to a frame of this page. */
  const form = (url, properties, fields) =>
    new Promise((resolve) => {
      const frame = Object.assign(document.createElement("iframe"), {
        name: `frame-${Math.random()}`,
      });
      const made = Object.assign(document.createElement("form"), {
        method: "POST",
        action: url,
        target: frame.name,
        ...properties,
      });
      for (const [name, value] of Object.entries(fields)) {
        made.append(
          Object.assign(document.createElement("input"), { type: "hidden", name, value }),
        );
      }
      document.body.append(frame, made);
      frame.onload = () => resolve(inside(frame));
      made.submit();
    });

  /** A document without an origin of its own, which says what it read. */
  const sandboxed = (url) =>
    new Promise((resolve) => {
      addEventListener("message", ({ data }) => resolve(data), { once: true });
      const headers = "{'Content-Type': 'text/plain'}";
      const options = `{method: 'POST', body: ${JSON.stringify(json)}, headers: ${headers}}`;
      const inner = `fetch(${JSON.stringify(url)}, ${options})
        .then(answer => answer.text()).then(() => 'read', () => '')
        .then(told => parent.postMessage(told, '*'))`;
      const frame = Object.assign(document.createElement("iframe"), {
        srcdoc: `<script>${inner}</${"script"}>`,
      });
      frame.sandbox = "allow-scripts";
      document.body.append(frame);
    });

  const socket = (url) =>
    new Promise((resolve) => {
      const made = new WebSocket(url.replace("http", "ws"));
      made.onopen = () => resolve("read");
      made.onerror = () => resolve("");
    });
  const source = (url) =>
    new Promise((resolve) => {
      const made = new EventSource(url);
      const end = (told) => (made.close(), resolve(told));
      made.onmessage = () => end("read");
      made.onerror = () => end("");
    });
  const worker = (url) =>
    new Promise((resolve) => {
      const code = `try { importScripts(${JSON.stringify(url)}); } catch {}
        postMessage(globalThis.read ?? "");`;
      const made = new Worker(URL.createObjectURL(new Blob([code])));
      made.onmessage = ({ data }) => resolve(data);
      made.onerror = () => resolve("");
    });
  const beacon = (url, body) => (navigator.sendBeacon(url, body), "");

  const ways = {
    "a read": (way) => get(history(way)),
    "a read with credentials": (way) => get(history(way), { credentials: "include" }),
    "a read without cors": (way) => get(history(way), { mode: "no-cors" }),
    "a read without a referrer": (way) => get(history(way), { referrerPolicy: "no-referrer" }),
    "a post of JSON": (way) => write(send(way), "application/json"),
    "a post of text": (way) => write(send(way), "text/plain"),
    "a post without cors": (way) => write(send(way), "text/plain", { mode: "no-cors" }),
    "a post that outlives the page": (way) => write(send(way), "text/plain", { keepalive: true }),
    "a post with a key of its own": (way) =>
      get(send(way), { method: "POST", body: json, headers: { "Idempotency-Key": "k" } }),
    "a delete": (way) => get(at(`/conversations/${id}`, way), { method: "DELETE" }),
    "a cancel": (way) =>
      get(at(`/conversations/${id}/cancel`, way), { method: "POST", mode: "no-cors" }),
    "a beacon": (way) => beacon(send(way), json),
    "a beacon of JSON": (way) => beacon(send(way), new Blob([json], { type: "application/json" })),
    "a form": (way) => form(send(way), {}, { conversationId: id }),
    "a form of parts": (way) =>
      form(send(way), { enctype: "multipart/form-data" }, { conversationId: id }),
    "a form that is JSON": (way) =>
      form(send(way), { enctype: "text/plain" }, { [json.slice(0, -1) + ',"x":"']: '"}' }),
    "a form without a referrer": (way) =>
      form(send(way), { rel: "noreferrer" }, { conversationId: id }),
    "a form that says DELETE": (way) =>
      form(at(`/conversations/${id}`, way), {}, { _method: "DELETE" }),
    "a form that reads": (way) => form(history(way), { method: "GET" }, { way }),
    script: (way) => script({ src: history(way) }),
    module: (way) =>
      import(history(way)).then(
        ({ read }) => read,
        () => "",
      ),
    worker: (way) => worker(history(way)),
    stylesheet: (way) =>
      element("link", { rel: "stylesheet", href: history(way) }, () =>
        getComputedStyle(document.body).getPropertyValue("--read"),
      ),
    "a picture": (way) => element("img", { src: history(way) }),
    "a frame": (way) => element("iframe", { src: history(way) }, inside),
    "a sandboxed frame": (way) => sandboxed(send(way)),
    "event source": (way) => source(at(`/conversations/${id}/stream`, way)),
    "a web socket": (way) => socket(send(way)),
  };
  return Promise.all(Object.entries(ways).map(async ([way, go]) => [way, await go(way)])).then(
    Object.fromEntries,
  );
}
