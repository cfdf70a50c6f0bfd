package e2b

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// uploadLifetime is the time for which an upload URL can be used, as long as clients try an upload.
const uploadLifetime = time.Hour

// fileLink reports whether the tenant has uploaded the files with a hash, and returns a URL for their
// upload. Clients send no key to that URL, so it contains a token.
func (b *builds) fileLink(w http.ResponseWriter, r *http.Request) error {
	template, hash := param(r, "template"), param(r, "hash")
	present, err := b.Builder.HasFiles(r.Context(), hash)
	if err != nil {
		return err
	}
	if _, err := b.Builder.Template(r.Context(), template); err != nil {
		return err
	}
	source, ok := b.tokens.source(brig.ActorFrom(r.Context()))
	if !ok || source == "" {
		return brig.Errorf(brig.PermissionDenied, "this key cannot upload files").WithHint("use a member's key")
	}
	expires := strconv.FormatInt(b.Clock.Now().Add(uploadLifetime).Unix(), 10)
	u := url.URL{Scheme: "http", Host: r.Host, Path: "/templates/" + template + "/files/" + hash}
	if r.TLS != nil || b.keyring.Cookie.Secure {
		u.Scheme = "https"
	}
	u.RawQuery = url.Values{"expires": {expires}, "token": {b.uploadToken(template, hash, expires, source)}}.Encode()
	b.write(w, r, http.StatusCreated, struct {
		Present bool   `json:"present"`
		URL     string `json:"url"`
	}{present, u.String()})
	return nil
}

// uploadToken returns the token of an upload URL. Its text has a prefix that no sandbox's ID has.
func (b *builds) uploadToken(template, hash, expires, source string) string {
	return b.tokens.restrictedToken("template-upload/"+template+"/"+hash+"/"+expires, source)
}

// authenticateUpload checks the token of an upload URL and returns the proof of the key or grant that
// asked for it.
func (b *builds) authenticateUpload(r *http.Request) (httpapi.Proof, error) {
	q := r.URL.Query()
	token, expires := q.Get("token"), q.Get("expires")
	source := sourceOfToken(token)
	invalid := brig.Errorf(brig.Unauthenticated, "the URL of the upload is not valid, or not any more").WithHint("ask for another one")
	if source == "" || b.Options.KeyActor == nil || !equalSecrets(token, b.uploadToken(param(r, "template"), param(r, "hash"), expires, source)) {
		return httpapi.Proof{}, invalid
	}
	seconds, err := strconv.ParseInt(expires, 10, 64)
	if err != nil || b.Clock.HasPassed(time.Unix(seconds, 0)) {
		return httpapi.Proof{}, invalid
	}
	return httpapi.NewProof(r.Context(), source, func(ctx context.Context) (brig.Actor, error) { return b.tokens.actorOf(ctx, source) })
}

// putFiles stores the files of a COPY step.
func (b *builds) putFiles(w http.ResponseWriter, r *http.Request) error {
	if r.ContentLength < 0 {
		return httpapi.WithStatus(http.StatusLengthRequired, brig.Errorf(brig.InvalidArgument, "the header Content-Length is missing"))
	}
	httpapi.AllowLongBody(r)
	if err := b.Builder.PutFiles(r.Context(), param(r, "hash"), r.ContentLength, r.Body); err != nil {
		return err
	}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
	return nil
}
