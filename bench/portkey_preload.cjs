// Loaded before Portkey's gateway (node --require). Two things only, neither of which makes it do less:
// it listens on loopback, and fetch's answer gets headers that may be changed (Node 20 makes them immutable,
// which the gateway answers with HTTP 500 for every stream).
"use strict";

const net = require("node:net");

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (first, ...rest) {
  if (first !== null && typeof first === "object" && first.port !== undefined) {
    return listen.call(this, { ...first, host: "127.0.0.1" }, ...rest);
  }
  const callbacks = rest.filter((argument) => typeof argument === "function");
  return listen.call(this, { port: Number(first), host: "127.0.0.1" }, ...callbacks);
};

const ask = globalThis.fetch;
const bodiless = new Set([101, 204, 205, 304]);
globalThis.fetch = async function (...request) {
  const answer = await ask(...request);
  return new Response(bodiless.has(answer.status) ? null : answer.body, {
    status: answer.status,
    statusText: answer.statusText,
    headers: new Headers(answer.headers),
  });
};
