// The service worker keeps what the reader has loaded: the second visit is faster, and needs no network.
//
// Python and its library, whose addresses name their version, come from the cache; all else from the network, if there
// is one.

const VERSION = "d2lmgpu {{VERSION}}";
const FIXED = new URL("tab/", registration.scope).href;

addEventListener("install", () => skipWaiting());

addEventListener("activate", event =>
  event.waitUntil(
    (async () => {
      for (const name of await caches.keys()) if (name.startsWith("d2lmgpu ") && name !== VERSION) await caches.delete(name);
      await clients.claim();
    })(),
  ),
);

// The page tells which files it has loaded already.
addEventListener("message", event =>
  event.waitUntil(
    (async () => {
      const cache = await caches.open(VERSION);
      await Promise.allSettled(event.data.loaded.map(async url => (await cache.match(url)) || cache.add(url)));
    })(),
  ),
);

addEventListener("fetch", event => {
  const { method, url } = event.request;
  const isFixed = url.startsWith(FIXED) && !url.endsWith("files.json");
  if (method === "GET" && url.startsWith(registration.scope)) event.respondWith(answer(event.request, isFixed));
});

async function answer(request, isFixed) {
  const cache = await caches.open(VERSION);
  const kept = () => cache.match(request, { ignoreSearch: !isFixed });
  if (isFixed) {
    const found = await kept();
    if (found) return found;
  }
  try {
    const found = await fetch(request);
    if (found.status === 200) await cache.put(request, found.clone()).catch(() => {}); // the disk may be full
    return found;
  } catch (error) {
    return (await kept()) || Promise.reject(error);
  }
}
