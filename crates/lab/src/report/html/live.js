// Follows a run in progress by server-sent events, and shows its report at the end.
"use strict";

(() => {
  const changed = () => Number(document.getElementById("now").dataset.change);
  const say = (text) => (document.querySelector("#now .progress span").textContent = text);
  let waiting = Promise.resolve();

  const fetchPage = async (isLast) => {
    const url = new URL(location.href);
    if (isLast) url.searchParams.set("end", "1");
    const response = await fetch(url);
    if (!response.ok) throw new Error(response.statusText);
    const next = new DOMParser().parseFromString(await response.text(), "text/html");
    document.title = next.title;
    report.replace(document.getElementById("report"), next.getElementById("report"));
    report.replace(document.getElementById("now"), next.getElementById("now"));
  };

  const source = new EventSource(`events?after=${changed()}`);
  // In order: a second belongs to the page before or after it.
  const inOrder = (change) =>
    (waiting = waiting.then(change).catch((error) => say(`the page is not up to date: ${error.message}`)));
  source.addEventListener("page", () => inOrder(() => fetchPage(false)));
  source.addEventListener("second", (event) =>
    inOrder(() => {
      if (Number(event.lastEventId) <= changed()) return;
      const now = document.getElementById("now");
      const { arm, share, text, point } = JSON.parse(event.data);
      now.dataset.change = event.lastEventId;
      now.querySelector("progress").value = share;
      say(text);
      if (point) report.add(now, arm, point);
    }),
  );
  source.addEventListener("end", () => {
    source.close();
    inOrder(() => fetchPage(true));
  });
  source.addEventListener("error", () =>
    inOrder(() => say("no connection to the run: it has ended, or it starts again")),
  );
})();
