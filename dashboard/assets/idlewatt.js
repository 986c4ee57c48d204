/* Client side of the shell: asks for the next instant, shows its age, keeps the theme.
 *
 * One request at a time: the next one leaves two seconds after the last, when its answer is there
 * and the tab is visible. A missing answer shows as a banner, and the age goes on growing.
 */
(function () {
  "use strict";
  var EVERY_MS = 2000;
  var OVERDUE_MS = 6000;
  var RETRY_MS = 10000;
  var KEY = "idlewatt-theme";
  var sent = { id: 0, at: 0, waitingSince: 0 };
  var answer = { id: null, at: 0 };

  function prefersDark() {
    return window.matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function resolve(choice) {
    if (choice === "light" || choice === "dark") return choice;
    return prefersDark() ? "dark" : "light";
  }
  function remembered() {
    try { return window.localStorage.getItem(KEY) || "system"; } catch (error) { return "system"; }
  }
  document.documentElement.setAttribute("data-mantine-color-scheme", resolve(remembered()));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () {
    if (window.dash_clientside.set_props) {
      window.dash_clientside.set_props("shell-system", { data: prefersDark() ? "dark" : "light" });
    }
  });

  function span(seconds) {
    var s = Math.max(0, Math.round(seconds));
    if (s < 120) return s + "\u202fs";
    if (s < 7200) return Math.floor(s / 60) + "\u202fmin";
    if (s < 172800) return Math.floor(s / 3600) + "\u202fh " + Math.floor((s % 3600) / 60) + "\u202fmin";
    return Math.floor(s / 86400) + "\u202fd";
  }
  function utc(ms) { return new Date(ms).toISOString().slice(11, 19); }

  /* Returns what the freshness strip shows. `now` is the browser's clock; only differences of it
   * are used, so a wrong clock or a foreign zone changes nothing. */
  function strip(pulse, now) {
    var serverNow = pulse.now_us / 1000 + (now - answer.at);
    var clock = utc(serverNow) + " UTC";
    if (pulse.as_of_us === null) {
      return ["\u25cb", "No data", "is-none", "no sample yet", clock];
    }
    var age = (serverNow - pulse.as_of_us / 1000) / 1000;
    var stale = age > pulse.stale_s;
    return [
      stale ? "\u25b2" : "\u25cf",
      stale ? "Data is stale" : "Data is live",
      stale ? "is-stale" : "is-live",
      "newest sample " + span(age) + " old",
      clock,
    ];
  }

  function banner(pulse, now, overdue) {
    if (overdue) {
      return "This page is not live: no answer from the server for " + span((now - answer.at) / 1000) +
        (pulse && pulse.as_of_us ? ". Numbers below are from " + utc(pulse.as_of_us / 1000) + " UTC" : "") +
        ". It goes on by itself when the server is back.";
    }
    if (pulse && pulse.as_of_us !== null) {
      var age = (pulse.now_us / 1000 + (now - answer.at) - pulse.as_of_us / 1000) / 1000;
      if (age > pulse.stale_s) {
        return "The data is stale: no node has sent a sample for " + span(age) +
          ". Numbers below are from " + utc(pulse.as_of_us / 1000) + " UTC.";
      }
    }
    return "";
  }

  function nextRequest(now) {
    var waiting = sent.id !== answer.id;
    if (document.hidden) return null;
    if (waiting && now - sent.at < RETRY_MS) return null;
    if (now - sent.at < EVERY_MS - 100) return null;
    if (!waiting || !sent.waitingSince) sent.waitingSince = now;
    sent.id += 1;
    sent.at = now;
    return sent.id;
  }

  function title() {
    var heading = document.querySelector("#main h1");
    var text = (heading ? heading.textContent + " \u00b7 " : "") + "idlewatt";
    if (document.title !== text) document.title = text;
  }

  function tick(_n, pulse) {
    title();
    var skip = window.dash_clientside.no_update;
    var now = Date.now();
    if (pulse && pulse.request !== null && pulse.request !== answer.id) {
      answer.id = pulse.request;
      answer.at = now;
      if (answer.id === sent.id) sent.waitingSince = 0;
    }
    if (!answer.at) answer.at = now;
    if (document.hidden) sent.waitingSince = 0;
    var overdue = Boolean(sent.waitingSince) && now - sent.waitingSince > OVERDUE_MS;
    var request = nextRequest(now);
    var text = banner(pulse, now, overdue);
    var shown = pulse ? strip(pulse, now) : ["\u25cb", "Connecting", "is-none", "", ""];
    if (overdue) shown = ["\u25a0", "Not live", "is-stale", shown[3], shown[4]];
    return [
      shown[0], shown[1], "freshness " + shown[2], shown[3], shown[4],
      text, text ? "banner" : "banner is-hidden",
      overdue ? "page is-frozen" : "page",
      request === null ? skip : request,
    ];
  }

  function scheme(choice, _system) {
    try { window.localStorage.setItem(KEY, choice); } catch (error) { /* private mode */ }
    var now = resolve(choice);
    document.documentElement.setAttribute("data-mantine-color-scheme", now);
    return [now, now];
  }

  function startChoice(_ready) { return remembered(); }

  /* The URL is the one place of state: a control reads it when it changed, and writes it when the
   * control did. What a control starts with stands in no URL. */
  function put(name, value, usual) {
    var query = new URLSearchParams(window.location.search);
    if ((query.get(name) || usual) === value) return;
    if (value === usual) query.delete(name); else query.set(name, value);
    var text = query.toString();
    window.dash_clientside.set_props("shell-url", { search: text ? "?" + text : "" });
  }
  function readChoice(name) {
    return function (search, value, options) {
      var asked = new URLSearchParams(search || "").get(name);
      var known = options.map(function (option) { return option.value; });
      var wanted = known.indexOf(asked) < 0 ? known[0] : asked;
      return wanted === value ? window.dash_clientside.no_update : wanted;
    };
  }
  function writeChoice(name) {
    return function (value, options) { put(name, value, options[0].value); return value; };
  }
  function readText(name) {
    return function (search, value) {
      var wanted = new URLSearchParams(search || "").get(name) || "";
      return wanted === (value || "") ? window.dash_clientside.no_update : wanted;
    };
  }
  function writeText(name) {
    return function (value) { put(name, value || "", ""); return value || ""; };
  }
  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    idlewatt: {
      tick: tick, scheme: scheme, startChoice: startChoice,
      readWindow: readChoice("window"), writeWindow: writeChoice("window"),
      readBy: readChoice("by"), writeBy: writeChoice("by"),
      readSearch: readText("q"), writeSearch: writeText("q"),
    },
  });
})();
