// Order pictures, follow each until it has its verdict, and show what our own tables say then.

const [form, notice, list, credits, template] = ["form", "[role=alert]", "ol", "#credits", "template"].map(
  (selector) => document.querySelector(selector),
);
const cards = new Map();
const RETRY_MS = 1000;
let unsent; // an order that may or may not have arrived: it keeps its id, so that sending it again is safe

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const prompt = form.prompt.value.trim();
  if (unsent?.prompt !== prompt) unsent = { id: crypto.randomUUID(), prompt };
  form.querySelector("button").disabled = true;
  try {
    await call("/pictures", unsent);
    unsent = undefined;
    notice.textContent = "";
    form.reset();
    await refresh();
  } catch (error) {
    notice.textContent = `Not ordered: ${error.message}.`;
  } finally {
    form.querySelector("button").disabled = false;
  }
});

/** Show what the application knows of our pictures, and follow those that are not over. */
async function refresh() {
  const found = await call("/pictures");
  credits.textContent = found.credits;
  for (const picture of found.pictures.toReversed()) {
    const card = cards.get(picture.id) ?? newCard(picture);
    if (picture.state === "reserved") follow(card);
    else show(card, picture.state, picture.reason);
  }
}

/** Hear of a picture until its end. The browser resumes a stream that breaks; one that is refused is ours. */
function follow(card) {
  if (card.source) return;
  const source = (card.source = new EventSource(`/pictures/${card.id}/events`));
  source.addEventListener("running", () => show(card, "running"));
  for (const verdict of ["done", "failed"]) source.addEventListener(verdict, retrying(refresh));
  source.addEventListener("end", () => source.close());
  source.addEventListener("open", () => show(card, card.state));
  source.addEventListener("error", () => {
    say(card, "The connection broke; trying again.");
    if (source.readyState !== EventSource.CLOSED) return;
    card.source = undefined;
    setTimeout(retrying(refresh), RETRY_MS);
  });
}

function newCard({ id, prompt }) {
  const element = template.content.firstElementChild.cloneNode(true);
  element.querySelector(".prompt").textContent = prompt; // text, whatever somebody typed
  list.prepend(element);
  const card = { id, prompt, element };
  cards.set(id, card);
  show(card, "reserved");
  return card;
}

function show(card, state, reason) {
  if (["captured", "refunded"].includes(card.state)) return; // a verdict is final
  card.state = card.element.dataset.state = state;
  say(card, sentence(state, reason));
  if (state === "captured") card.element.querySelector(".frame").append(imageOf(card));
}

function sentence(state, reason) {
  if (state === "captured") return "Done.";
  if (state === "refunded") return `Failed: ${reason}. Your credit was refunded.`;
  return state === "running" ? "Being painted." : "Waiting for a painter.";
}

function say(card, text) {
  card.element.querySelector(".status").textContent = text;
}

function imageOf({ id, prompt }) {
  const image = new Image();
  image.alt = prompt;
  image.src = `/pictures/${id}/image`;
  return image;
}

/** Call until it works: what is read can be read again. */
function retrying(task) {
  const attempt = () => task().catch(() => setTimeout(attempt, RETRY_MS));
  return attempt;
}

async function call(path, body) {
  const post = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, body && post);
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(told.error ?? `the answer was HTTP ${answer.status}`);
  return told;
}

retrying(refresh)();
