package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

func TestEveryErrorKindHasStatus(t *testing.T) {
	for _, k := range brig.Kinds {
		status, ok := statuses[k]
		if !ok || status < 400 || status > 599 {
			t.Errorf("%s has status %d", k, status)
		}
	}
	if len(statuses) != len(brig.Kinds) {
		t.Errorf("%d statuses for %d kinds", len(statuses), len(brig.Kinds))
	}
	if got := Status("from the future"); got != 500 {
		t.Errorf("an unknown kind has status %d", got)
	}
}

func TestWriteErrorHidesCauses(t *testing.T) {
	for _, k := range brig.Kinds {
		w := httptest.NewRecorder()
		if err := WriteError(w, brig.Errorf(k, "password hunter2").Because(errors.New("cause"))); err != nil {
			t.Fatal(err)
		}
		var body v1.ErrorAnswer
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		if body.Error.Kind != string(k) || body.Error.Code != k.Code() {
			t.Errorf("%s is written as %+v", k, body.Error)
		}
		if strings.Contains(w.Body.String(), "cause") || k == brig.Internal && strings.Contains(w.Body.String(), "hunter2") {
			t.Errorf("%s tells %s", k, w.Body)
		}
		if retry := w.Header().Get("Retry-After"); w.Code == 429 || w.Code == 503 {
			if n, err := strconv.Atoi(retry); err != nil || n < 1 {
				t.Errorf("%s has Retry-After %q", k, retry)
			}
		} else if retry != "" {
			t.Errorf("%s has Retry-After %q", k, retry)
		}
		if (w.Code == 401) != (w.Header().Get("WWW-Authenticate") != "") {
			t.Errorf("%s (%d) has WWW-Authenticate %q", k, w.Code, w.Header().Get("WWW-Authenticate"))
		}
	}
}

const goodKey = "brig_0123456789012345678901234567890123456789"

type singleKey struct{ calls int }

func (k *singleKey) KeyActor(_ context.Context, hash [32]byte) (brig.Actor, error) {
	k.calls++
	if hash == sha256.Sum256([]byte(goodKey)) {
		return brig.Actor{Name: "ann"}, nil
	}
	return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "none")
}

func TestAuthRejectsInvalidKeys(t *testing.T) {
	for _, c := range []struct {
		headers []string
		status  int
		lookups int
	}{
		{[]string{"Bearer " + goodKey}, 200, 1},
		{[]string{"bearer  " + goodKey}, 200, 1},
		{nil, 401, 0},
		{[]string{""}, 401, 0},
		{[]string{goodKey}, 401, 0},
		{[]string{"Basic " + goodKey}, 401, 0},
		{[]string{"Bearer short"}, 401, 0},
		{[]string{"Bearer brig_short"}, 401, 0},
		{[]string{"Bearer " + goodKey + "\xff"}, 401, 0},
		{[]string{"Bearer brig_" + strings.Repeat("a", 1000)}, 401, 0},
		{[]string{"Bearer " + goodKey + "1"}, 401, 1},
		{[]string{"Bearer " + goodKey, "Bearer " + goodKey}, 401, 0},
	} {
		keys := &singleKey{}
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.Header["Authorization"] = c.headers
		Auth(keys, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if brig.ActorFrom(r.Context()).Name != "ann" {
				t.Error("no actor")
			}
		})).ServeHTTP(w, r)
		if w.Code != c.status || keys.calls != c.lookups {
			t.Errorf("%q: %d after %d look-ups, want %d after %d", c.headers, w.Code, keys.calls, c.status, c.lookups)
		}
	}
}

func TestGuardRejectsForeignHostsAndSites(t *testing.T) {
	h := Guard([]string{"10.1.2.3:2744", "Brig.Example", "[fd00::1]:2744"}, "/landing", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct {
		host, origin, site string
		status             int
	}{
		{"localhost", "", "", 200},
		{"localhost:1234", "", "", 200},
		{"LOCALHOST.", "", "", 200},
		{"127.0.0.1:2744", "", "", 200},
		{"[::1]", "", "", 200},
		{"[::1]:2744", "", "", 200},
		{"10.1.2.3", "", "", 200},
		{"10.1.2.3:80", "", "", 200},
		{"brig.example", "", "", 200},
		{"[fd00::1]:1", "", "", 200},
		{"evil.test", "", "", 421},
		{"evil.test:2744", "", "", 421},
		{"localhost.evil.test", "", "", 421},
		{"127.0.0.1.evil.test:2744", "", "", 421},
		{"", "", "", 421},
		{"[::1", "", "", 421},
		{"127.0.0.2", "", "", 421},
		{"localhost", "http://localhost", "same-origin", 200},
		{"localhost:1", "http://localhost:1", "none", 200},
		{"localhost:1", "http://localhost:2", "", 403},
		{"localhost", "http://evil.test", "", 403},
		{"localhost", "null", "", 403},
		{"localhost", "file://", "", 403},
		{"localhost", "http://localhost@evil.test", "", 403},
		{"localhost", "ht tp://", "", 403},
		{"localhost", "", "cross-site", 403},
		{"localhost", "", "same-site", 403},
		{"localhost", "", "CROSS-SITE", 403},
		{"evil.test", "http://evil.test", "same-origin", 421},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		if h.ServeHTTP(w, r); w.Code != c.status {
			t.Errorf("Host %q Origin %q Sec-Fetch-Site %q: %d, want %d", c.host, c.origin, c.site, w.Code, c.status)
		}
	}
}

func TestNearestFindsMistypedName(t *testing.T) {
	names := []string{"image", "command", "limits", "env"}
	for word, want := range map[string]string{
		"imagee": "image", "Image": "image", "comand": "command", "limit": "limits", "frobnicate": "", "": "", "e": "",
	} {
		if got := Nearest(word, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestReadJSONRejectsInvalidBodies(t *testing.T) {
	big := strings.Repeat(" ", MaxBody) + "{}"
	for _, c := range []struct {
		kind, body string
		length     int64
		optional   bool
		status     int
	}{
		{"application/json", `{}`, 2, false, 0},
		{"application/json; charset=UTF-8", `{}`, 2, false, 0},
		{"application/json", "", 0, true, 0},
		{"", "", 0, true, 0},
		{"", "", 0, false, 400},
		{"", "{}", 2, true, 415},
		{"text/plain", "{}", 2, false, 415},
		{"text/plain", "{}", -1, false, 415},
		{"application/json; charset=latin1", "{}", 2, false, 415},
		{"application/x-www-form-urlencoded", "a=b", 3, false, 415},
		{"application/json", big, int64(len(big)), false, 413},
		{"application/json", big, -1, false, 413},
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.kind)
		r.ContentLength = c.length
		err := ReadJSON(httptest.NewRecorder(), r, &v1.KillRequest{}, c.optional)
		if status := StatusOf(err); err == nil && c.status != 0 || err != nil && status != c.status {
			t.Errorf("%q %.10q: %v (%d), want %d", c.kind, c.body, err, status, c.status)
		}
	}
}
