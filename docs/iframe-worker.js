// The theme's search runs in a worker, and browsers give none to a page that was opened from disk.
// There, the worker's script runs in a hidden frame. On a server nothing is changed.
// (The theme's "offline" plugin would ask unpkg.com for such a script, unless one of this name is there.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<body></body>";
      this.running = new Promise((resolve) => {
        frame.onload = () => {
          const inside = frame.contentWindow;
          const script = inside.document.createElement("script");
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          script.src = url;
          script.onload = () => resolve(inside);
          inside.document.body.append(script);
        };
      });
      document.body.append(frame);
    }

    postMessage(data) {
      this.running.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
