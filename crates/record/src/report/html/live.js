// Follows a run in progress by server-sent events, and shows its report at the end.
"use strict";

(() => {
  // `null`: the page is the finished report.
  const now = () => document.getElementById("now");
  let last = now().querySelector(".progress span").textContent;
  const say = (text) => {
    const place = now()?.querySelector(".progress span");
    if (place) place.textContent = text;
  };
  let waiting = Promise.resolve();

  const fetchPage = async (isLast) => {
    const url = new URL(location.href);
    if (isLast) url.searchParams.set("end", "1");
    const response = await fetch(url);
    if (!response.ok) throw new Error(response.statusText);
    const next = new DOMParser().parseFromString(await response.text(), "text/html");
    document.title = next.title;
    report.replace(document.getElementById("report"), next.getElementById("report"));
    if (now()) report.replace(now(), next.getElementById("now"));
    last = now()?.querySelector(".progress span").textContent;
  };

  // The token is in the query.
  const url = new URL("events", location.href);
  url.search = location.search;
  url.searchParams.set("after", now().dataset.change);
  const source = new EventSource(url);
  // In order: a second belongs to the page before or after it.
  const inOrder = (change) =>
    (waiting = waiting.then(change).catch((error) => say(`the page is not up to date: ${error.message}`)));
  source.addEventListener("page", () => inOrder(() => fetchPage(false)));
  source.addEventListener("second", (event) =>
    inOrder(() => {
      if (!now() || Number(event.lastEventId) <= Number(now().dataset.change)) return;
      const { arm, share, text, point } = JSON.parse(event.data);
      now().dataset.change = event.lastEventId;
      now().querySelector("progress").value = share;
      last = text;
      say(text);
      if (point) report.add(now(), arm, point);
    }),
  );
  source.addEventListener("end", () => {
    source.close();
    inOrder(() => fetchPage(true));
  });
  // The server ends each connection after a minute, and the browser opens the next one.
  source.addEventListener("error", () => inOrder(() => say("no connection to the run")));
  source.addEventListener("open", () => inOrder(() => say(last)));
})();
