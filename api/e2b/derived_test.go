package e2b_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b"
	dataplane "github.com/brig-run/brig/api/e2b/envd"
	"github.com/brig-run/brig/builder"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/provider/fake"
	"github.com/brig-run/brig/store/mem"
)

// hostOnly is an image store that contains the host image.
type hostOnly struct{ brig.ImageStore }

func (hostOnly) Resolve(_ context.Context, ref string) (*brig.Image, error) {
	if ref == brig.HostImage || ref == "sha256:host" {
		return &brig.Image{Digest: "sha256:host", Names: []string{brig.HostImage}}, nil
	}
	return nil, brig.Errorf(brig.NotFound, "no image %q", ref)
}

func (hostOnly) List(context.Context) ([]*brig.Image, error) { return nil, nil }

// engineServer serves the API on top of an engine. Tests call it without a network, so that all
// parts use the clock of the test.
type engineServer struct {
	*engine.Engine
	door    *e2b.API
	admin   context.Context
	watches func() int // number of open watches
}

// watchCounter implements watches and counts them.
type watchCounter struct {
	brig.Service
	n atomic.Int32
}

// Files implements brig.Service.
func (w *watchCounter) Files(name string) brig.Files {
	return watchCounterFiles{w.Service.Files(name), w}
}

type watchCounterFiles struct {
	brig.Files
	by *watchCounter
}

// Watch implements brig.Files, because the fake provider cannot watch. It
// reports a new file every ten seconds.
func (f watchCounterFiles) Watch(ctx context.Context, _ brig.Path, _ bool, on func(brig.FileChange) error) error {
	f.by.n.Add(1)
	defer f.by.n.Add(-1)
	err := on(brig.FileChange{}) // this change reports that the watch has begun
	for i := 1; err == nil; i++ {
		select {
		case <-time.After(10 * time.Second):
			err = on(brig.FileChange{Name: "file" + strconv.Itoa(i), Kinds: []brig.ChangeKind{brig.Created}})
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return err
}

func newEngineServer(t *testing.T) *engineServer {
	t.Helper()
	store := mem.New()
	if err := store.PutTenant(t.Context(), &brig.Tenant{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	templates := []brig.Template{{Name: "base", Image: "host"}}
	e := engine.New(t.Context(), engine.Options{
		Store: store, Provider: &fake.Provider{BuildRights: true}, Images: hostOnly{}, LimitRange: brig.DefaultLimitRange(), GrantSeed: []byte("grants"), Templates: templates,
	})
	count := &watchCounter{Service: e}
	data := dataplane.New(dataplane.Options{Service: count})
	builds, err := builder.New(t.Context(), builder.Options{Service: engine.BuildService{Engine: e}, Store: store, Dir: t.TempDir(), Configured: templates, Actor: e.KeyByID})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		data.Close()
		builds.Close()
		ctx := brig.WithActor(context.WithoutCancel(t.Context()), brig.Actor{Name: "root", Tenant: "acme", Role: brig.Admin})
		for _, id := range e.Live() {
			_ = e.Remove(ctx, id)
		}
		e.Close()
	})
	return &engineServer{Engine: e, watches: func() int { return int(count.n.Load()) }, admin: brig.WithActor(t.Context(), brig.Actor{Name: "root", Tenant: "acme", Role: brig.Admin}), door: e2b.New(e2b.Options{
		Service: e, Keys: e, KeyActor: e.KeyByID, Seed: []byte("seed"), Templates: templates, Builder: builds, Live: e.Live,
		Owner: func(ctx context.Context, id string) (string, error) { return store.Owner(ctx, brig.ID(id)) },
		TenantKeys: func(ctx context.Context, tenant string) (ids []string, err error) {
			list, err := store.ListKeys(ctx, tenant)
			for _, k := range list {
				ids = append(ids, k.ID)
			}
			return ids, err
		},
		Envd: func(w http.ResponseWriter, r *http.Request, s e2b.SandboxAccess) {
			data.Serve(w, r, dataplane.Sandbox{ID: s.ID, Token: s.Token, Env: s.Env, User: s.User, Dir: s.Dir})
		},
	})}
}

// doRequest sends a request. headers alternates between names and values.
func (x *engineServer) doRequest(ctx context.Context, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, "http://127.0.0.1"+path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	x.door.ServeHTTP(w, r)
	return w
}

// box is the description of a sandbox in the API's responses.
type box struct {
	SandboxID, EnvdAccessToken string
	TrafficAccessToken         string
}

// describe returns the description of a sandbox that the holder of a key or a
// grant receives from the control plane.
func (x *engineServer) describe(t *testing.T, method, path, body, secret string) (b box) {
	t.Helper()
	w := x.doRequest(t.Context(), method, path, body, "X-Api-Key", secret)
	if w.Code/100 != 2 {
		t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// closed is a request for a sandbox whose ports need a token.
const closed = `{"templateID":"base","timeout":3600,"network":{"allowPublicTraffic":false}}`

// key creates a key and returns it with a context that contains the key's actor.
func (x *engineServer) key(t *testing.T, spec brig.KeySpec) (*brig.NewKey, context.Context) {
	t.Helper()
	spec.Name = "sdk"
	k, err := x.CreateKey(x.admin, spec)
	if err != nil {
		t.Fatal(err)
	}
	a, err := x.KeyActor(t.Context(), sha256.Sum256([]byte(k.Secret)))
	if err != nil {
		t.Fatal(err)
	}
	return k, brig.WithActor(t.Context(), a)
}

func (x *engineServer) grant(t *testing.T, of context.Context, spec brig.GrantSpec) string {
	t.Helper()
	g, err := x.CreateGrant(of, spec)
	if err != nil {
		t.Fatal(err)
	}
	return g.Secret
}

// accessMethods lists every request that a client can make with the tokens of a sandbox, with
// the Service operation that each request requires.
var accessMethods = []struct {
	op   string
	do   func(x *engineServer, ctx context.Context, b box) *httptest.ResponseRecorder
	good int
}{
	{"context.", func(x *engineServer, ctx context.Context, b box) *httptest.ResponseRecorder {
		return x.servePort(ctx, b, 49999, "POST", "/execute", `{"code":"set x here"}`)
	}, 200},
	{"file.read", func(x *engineServer, ctx context.Context, b box) *httptest.ResponseRecorder {
		return x.servePort(ctx, b, 49983, "GET", "/files?path=/workspace/a", "")
	}, 200},
	{"file.list", func(x *engineServer, ctx context.Context, b box) *httptest.ResponseRecorder {
		return x.servePort(ctx, b, 49983, "POST", "/filesystem.Filesystem/ListDir", `{"path":"/workspace"}`)
	}, 200},
	{"file.mkdir", func(x *engineServer, ctx context.Context, b box) *httptest.ResponseRecorder {
		return x.servePort(ctx, b, 49983, "POST", "/filesystem.Filesystem/MakeDir", `{"path":"/workspace/`+rand.Text()+`"}`)
	}, 200},
	{"process.list", func(x *engineServer, ctx context.Context, b box) *httptest.ResponseRecorder {
		return x.servePort(ctx, b, 49983, "POST", "/process.Process/List", `{}`)
	}, 200},
	{"port.dial", func(x *engineServer, ctx context.Context, b box) *httptest.ResponseRecorder {
		return x.doRequest(ctx, "GET", "/", "", "E2b-Sandbox-Id", b.SandboxID, "E2b-Sandbox-Port", "8080", "E2b-Traffic-Access-Token", b.TrafficAccessToken)
	}, http.StatusBadGateway}, // the port was dialed, but no process listens
}

func (x *engineServer) servePort(ctx context.Context, b box, port int, method, path, body string) *httptest.ResponseRecorder {
	return x.doRequest(ctx, method, path, body, "E2b-Sandbox-Id", b.SandboxID, "E2b-Sandbox-Port", strconv.Itoa(port),
		"X-Access-Token", b.EnvdAccessToken, "E2b-Traffic-Access-Token", b.TrafficAccessToken)
}

// use makes every request of accessMethods. Requests whose operations begin
// with a prefix in allowed must succeed, and the others must fail. If allowed
// is empty, every request must succeed.
func (x *engineServer) use(t *testing.T, when string, b box, allowed ...string) {
	t.Helper()
	for _, way := range accessMethods {
		w := way.do(x, t.Context(), b)
		if may := brig.InScope(allowed, way.op); may != (w.Code == way.good) || !may && w.Code != 401 && w.Code != 403 {
			t.Errorf("%s, %s: %d %s", when, way.op, w.Code, w.Body)
		}
	}
}

// A sandbox token that was issued to a grant has the rights of the grant, and becomes invalid
// with the grant or its key. A token that was issued to the key remains valid.
func TestGrantTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newEngineServer(t)
		k, holder := x.key(t, brig.KeySpec{Role: brig.Member, Kind: brig.E2BKey})
		full := x.describe(t, "POST", "/v2/sandboxes", closed, k.Secret)
		other := x.describe(t, "POST", "/v2/sandboxes", closed, k.Secret)
		for _, id := range []string{full.SandboxID, other.SandboxID} {
			if _, err := x.Files(id).Write(holder, brig.Path{Name: "/workspace/a"}, brig.FileWrite{}, strings.NewReader("a")); err != nil {
				t.Fatal(err)
			}
		}
		s, err := x.Get(holder, full.SandboxID)
		if err != nil {
			t.Fatal(err)
		}
		get, connect := "/sandboxes/"+full.SandboxID, "/v2/sandboxes/"+full.SandboxID+"/connect"
		const none = "nothing at all"
		short := brig.GrantSpec{TTL: 15 * time.Second}
		narrow := brig.GrantSpec{TTL: 15 * time.Second, Scopes: []string{"sandbox.get", "file.read", "file.stat"}, Sandboxes: []string{s.Spec.Name}}
		ports := brig.GrantSpec{TTL: 15 * time.Second, Scopes: []string{"sandbox.", "port."}, Sandboxes: []string{s.Spec.Name}}
		secrets := []string{x.grant(t, holder, short), x.grant(t, holder, narrow), x.grant(t, holder, ports)}
		var received []box
		for _, secret := range secrets {
			b := x.describe(t, "GET", get, "", secret)
			if b.EnvdAccessToken == "" || b.EnvdAccessToken == full.EnvdAccessToken {
				t.Fatalf("got %+v, and the key's holder %+v", b, full)
			}
			received = append(received, b)
		}
		received[2] = x.describe(t, "POST", connect, `{"timeout":60}`, secrets[2])
		received[0] = x.describe(t, "POST", connect, `{"timeout":60}`, secrets[0])
		x.use(t, "before the end, the key", full)
		x.use(t, "before the end, a short grant", received[0])
		x.use(t, "before the end, a narrow grant", received[1], "file.read")
		x.use(t, "before the end, a grant for ports", received[2], "port.")
		beside := received[0]
		beside.SandboxID = other.SandboxID
		x.use(t, "at another sandbox", beside, none)
		for what, token := range map[string]string{
			"a token's source": strings.SplitN(received[1].EnvdAccessToken, ".", 2)[0] + "." + strings.SplitN(received[0].EnvdAccessToken, ".", 2)[1],
			"its key alone":    k.ID + "." + strings.SplitN(received[0].EnvdAccessToken, ".", 2)[1],
			"no signature":     strings.SplitN(received[0].EnvdAccessToken, ".", 2)[0] + ".",
			"wider terms":      forgeRights(t, received[1].EnvdAccessToken),
		} {
			x.use(t, "with "+what, box{full.SandboxID, token, token}, none)
		}
		made := x.describe(t, "POST", "/v2/sandboxes", closed, secrets[0])
		if w := accessMethods[0].do(x, t.Context(), made); w.Code != 200 {
			t.Errorf("in a sandbox that the grant made: %d %s", w.Code, w.Body)
		}
		time.Sleep(15 * time.Second)
		x.use(t, "at the end, the key", full)
		for _, b := range append(received, made) {
			x.use(t, "at the end, a grant", b, none)
		}
		later := x.describe(t, "GET", get, "", x.grant(t, holder, brig.GrantSpec{TTL: time.Hour}))
		later.TrafficAccessToken = x.describe(t, "POST", connect, `{"timeout":60}`, x.grant(t, holder, brig.GrantSpec{TTL: time.Hour})).TrafficAccessToken
		if err := x.RevokeKey(x.admin, k.ID); err != nil {
			t.Fatal(err)
		}
		x.use(t, "when the key was revoked, a grant", later, none)
		x.use(t, "when the key was revoked, the key", full, none)
	})
}

// forgeRights returns a token with forged rights.
func forgeRights(t *testing.T, token string) string {
	t.Helper()
	source, mac, _ := strings.Cut(token, ".")
	key, text, ok := strings.Cut(source, "~")
	data, err := base64.RawURLEncoding.DecodeString(text)
	var left brig.DerivedRights
	if err == nil {
		err = json.Unmarshal(data, &left)
	}
	if !ok || err != nil {
		t.Fatalf("%s: %v", token, err)
	}
	left.Scopes, left.Sandboxes, left.Expires = nil, nil, left.Expires.Add(time.Hour)
	if data, err = json.Marshal(left); err != nil {
		t.Fatal(err)
	}
	return key + "~" + base64.RawURLEncoding.EncodeToString(data) + "." + mac
}

// Only a key's token can sign a URL, and the URL becomes invalid when the key is revoked.
func TestGrantsCannotSignURLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newEngineServer(t)
		k, holder := x.key(t, brig.KeySpec{Role: brig.Member, Kind: brig.E2BKey, TTL: 50 * time.Minute})
		full := x.describe(t, "POST", "/v2/sandboxes", closed, k.Secret)
		if _, err := x.Files(full.SandboxID).Write(holder, brig.Path{Name: "/workspace/a"}, brig.FileWrite{}, strings.NewReader("a")); err != nil {
			t.Fatal(err)
		}
		read := func(token string, headers ...string) int {
			q := url.Values{"path": {"/workspace/a"}, "username": {"user"}, "signature": {dataplane.Signature("/workspace/a", "read", "user", token, 0)}}
			return x.doRequest(t.Context(), "GET", "/files?"+q.Encode(), "", headers...).Code
		}
		named := []string{"E2b-Sandbox-Id", full.SandboxID, "E2b-Sandbox-Port", "49983"}
		granted := x.describe(t, "GET", "/sandboxes/"+full.SandboxID, "", x.grant(t, holder, brig.GrantSpec{TTL: 15 * time.Second}))
		signed := func(when string, full, short int, b, g box) {
			t.Helper()
			for _, headers := range [][]string{nil, named} {
				if got := read(b.EnvdAccessToken, headers...); got != full {
					t.Errorf("%s, of the key: %d", when, got)
				}
				if got := read(g.EnvdAccessToken, headers...); got != short {
					t.Errorf("%s, of the grant: %d", when, got)
				}
			}
		}
		signed("before the end of the grant", 200, 401, full, granted)
		time.Sleep(15 * time.Second)
		signed("at the end of the grant", 200, 401, full, granted)
		time.Sleep(50 * time.Minute)
		signed("at the end of the key", 401, 401, full, granted)
	})
}

// A long request with a grant's token ends with the grant or with its key. A
// long request with the key's token ends only with the key.
func TestStreamsEndWithGrant(t *testing.T) {
	for name, revoke := range map[string]bool{"the grant ends": false, "the key is revoked": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newEngineServer(t)
				k, holder := x.key(t, brig.KeySpec{Role: brig.Member, Kind: brig.E2BKey})
				full := x.describe(t, "POST", "/v2/sandboxes", `{"templateID":"base","timeout":3600}`, k.Secret)
				ttl := 15 * time.Second
				if revoke {
					ttl = time.Hour
				}
				granted := x.describe(t, "GET", "/sandboxes/"+full.SandboxID, "", x.grant(t, holder, brig.GrantSpec{TTL: ttl}))
				begin := time.Now()
				goOn := func(b box, language string) chan time.Duration {
					done := make(chan time.Duration, 1)
					go func() {
						defer func() { _ = recover(); done <- time.Since(begin) }() // here, an aborted connection is a panic
						x.servePort(t.Context(), b, 49999, "POST", "/execute", `{"code":"sleep 300","language":"`+language+`"}`)
					}()
					return done
				}
				byKey, byGrant := goOn(full, "python"), goOn(granted, "bash")
				time.Sleep(14 * time.Second)
				select {
				case <-byKey:
					t.Fatal("what goes on with the key ended by itself")
				case <-byGrant:
					t.Fatal("what goes on with the grant ended by itself")
				default:
				}
				if time.Sleep(time.Second); revoke {
					if err := x.RevokeKey(x.admin, k.ID); err != nil {
						t.Fatal(err)
					}
				}
				if took := <-byGrant; took > 17*time.Second {
					t.Errorf("with the grant it went on for %v", took)
				}
				if took := <-byKey; (took < 300*time.Second) != revoke {
					t.Errorf("with the key it went on for %v", took)
				}
			})
		})
	}
}

// A watcher outlives the request that created it, but not the grant of that
// request. A client with another token of the same sandbox cannot read from the
// watcher.
func TestWatchersEndWithGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newEngineServer(t)
		k, holder := x.key(t, brig.KeySpec{Role: brig.Member, Kind: brig.E2BKey})
		full := x.describe(t, "POST", "/v2/sandboxes", `{"templateID":"base","timeout":3600}`, k.Secret)
		granted := x.describe(t, "GET", "/sandboxes/"+full.SandboxID, "", x.grant(t, holder, brig.GrantSpec{TTL: 15 * time.Second}))
		blind := x.describe(t, "GET", "/sandboxes/"+full.SandboxID, "", x.grant(t, holder, brig.GrantSpec{Scopes: []string{"sandbox."}}))
		rpc := func(b box, method, body string) (int, string) {
			w := x.servePort(t.Context(), b, 49983, "POST", "/filesystem.Filesystem/"+method, body)
			return w.Code, w.Body.String()
		}
		watch := func(b box) string {
			t.Helper()
			code, body := rpc(b, "CreateWatcher", `{"path":"/workspace"}`)
			var made struct{ WatcherID string }
			if err := json.Unmarshal([]byte(body), &made); err != nil || made.WatcherID == "" {
				t.Fatalf("%d %s: %v", code, body, err)
			}
			return `{"watcherId":"` + made.WatcherID + `"}`
		}
		byKey, byGrant := watch(full), watch(granted)
		time.Sleep(10 * time.Second)
		for who, c := range map[string]struct {
			b       box
			watcher string
			code    int
		}{
			"the key of the grant's": {full, byGrant, 404}, "the grant of the key's": {granted, byKey, 404},
			"a scope without files": {blind, byKey, 403}, "no token": {box{SandboxID: full.SandboxID}, byKey, 401},
		} {
			for _, method := range []string{"GetWatcherEvents", "RemoveWatcher"} {
				if code, body := rpc(c.b, method, c.watcher); code != c.code {
					t.Errorf("%s, %s: %d %s", who, method, code, body)
				}
			}
		}
		for who, c := range map[string]struct {
			b       box
			watcher string
		}{"the key": {full, byKey}, "the grant": {granted, byGrant}} {
			if code, body := rpc(c.b, "GetWatcherEvents", c.watcher); code != 200 || !strings.Contains(body, "file1") {
				t.Errorf("%s of its own: %d %s", who, code, body)
			}
		}
		if n := x.watches(); n != 2 {
			t.Errorf("%d watches go on", n)
		}
		time.Sleep(6 * time.Second)
		if n := x.watches(); n != 1 {
			t.Errorf("a second after the grant's end %d watches go on", n)
		}
		time.Sleep(10 * time.Second)
		if code, body := rpc(full, "GetWatcherEvents", byKey); code != 200 || !strings.Contains(body, "file2") {
			t.Errorf("the key, after the grant's end: %d %s", code, body)
		}
		if code, body := rpc(granted, "GetWatcherEvents", byGrant); code != 401 {
			t.Errorf("the grant, after its end: %d %s", code, body)
		}
	})
}

// TestForkReportsMissingCopies verifies that a fork beyond the limits reports an error for each copy
// that the limits do not allow.
func TestForkReportsMissingCopies(t *testing.T) {
	_, _, srv := serve(t)
	createSandbox(t, srv.URL, `{"templateID":"base","metadata":{"script":"limited"}}`)
	resp, body := doRequest(t, http.MethodPost, srv.URL+"/sandboxes/sb1/fork", `{"count":3}`)
	var out []struct {
		Sandbox *struct{ SandboxID string }
		Error   *struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil || resp.StatusCode != http.StatusCreated || len(out) != 3 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	for i, o := range out {
		if made := i < 2; made != (o.Sandbox != nil) || made != (o.Error == nil) || !made && o.Error.Code != http.StatusTooManyRequests {
			t.Errorf("%d: %s", i, body)
		}
	}
}
