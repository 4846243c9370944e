// Keeps a server that would listen on every address on this machine's own, and says where: "listening on 127.0.0.1:PORT".
"use strict";
const net = require("node:net");
const listen = net.Server.prototype.listen;

net.Server.prototype.listen = function (port, ...rest) {
  this.once("listening", () => console.log(`listening on 127.0.0.1:${this.address().port}`));
  return listen.call(this, Number(port), "127.0.0.1", ...rest.filter((one) => typeof one === "function"));
};
