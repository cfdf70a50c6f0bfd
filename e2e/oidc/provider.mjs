// An OpenID Connect provider on loopback, with its own users. A library implements the
// protocol. The configuration is JSON in the environment.
import { createServer } from "node:http";
import Provider from "oidc-provider";

const { port, clients, people, jwks, inToken, lifetime } = JSON.parse(process.env.OIDC);
const issuer = `http://127.0.0.1:${port}`;
const resource = "https://api.brig.example";

const provider = new Provider(issuer, {
  clients,
  jwks,
  // Claims in the ID token, or only at the userinfo endpoint.
  conformIdTokenClaims: !inToken,
  scopes: ["openid", "email", "profile", "groups", "offline_access"],
  claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"], groups: ["groups", "org"] },
  features: {
    devInteractions: { enabled: false },
    deviceFlow: { enabled: true },
    userinfo: { enabled: true },
    // Signed access tokens with one audience.
    resourceIndicators: {
      enabled: true,
      defaultResource: () => resource,
      useGrantedResource: () => false,
      getResourceServerInfo: () => ({ audience: resource, scope: "openid email profile groups", accessTokenFormat: "jwt", jwt: { sign: { alg: "RS256" } } }),
    },
  },
  extraTokenClaims: (_, token) => people[token.accountId]?.claims,
  pkce: { required: () => true },
  ttl: { IdToken: lifetime, AccessToken: lifetime },
  cookies: { keys: ["a key of the test's own"] },
  findAccount: (_, id) => people[id] && { accountId: id, claims: () => ({ sub: id, ...people[id].claims }) },
  // Sign in the user in login_hint without a password. The tests do not cover how the
  // provider authenticates users.
  interactions: { url: (_, i) => `/interaction/${i.uid}?who=${encodeURIComponent(i.params.login_hint ?? globalThis.who ?? "")}` },
});
provider.on("server_error", (_, e) => console.error("server_error", e));
provider.on("authorization.error", (_, e) => console.error("authorization.error", e.message, e.error_description));
provider.on("grant.error", (_, e) => console.error("grant.error", e.message, e.error_description));

const callback = provider.callback();
createServer(async (req, res) => {
  const url = new URL(req.url, issuer);
  if (url.pathname === "/who") { // who sits before the browser
    globalThis.who = url.searchParams.get("is");
    return res.end();
  }
  if (!url.pathname.startsWith("/interaction/")) return callback(req, res);
  try {
    const { prompt, params, session } = await provider.interactionDetails(req, res);
    let result = { login: { accountId: url.searchParams.get("who") } };
    if (!people[result.login.accountId]) result = { error: "access_denied", error_description: "nobody is there" };
    else if (prompt.name === "consent") {
      const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
      grant.addOIDCScope("openid email profile groups offline_access");
      grant.addResourceScope(resource, "openid email profile groups");
      result = { consent: { grantId: await grant.save() } };
    }
    await provider.interactionFinished(req, res, result, { mergeWithLastSubmission: true });
  } catch (e) {
    console.error("interaction", e);
    res.statusCode = 500;
    res.end(String(e));
  }
}).listen(port, "127.0.0.1", () => console.log("listening"));
