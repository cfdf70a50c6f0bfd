package egress

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// readPath returns the interpretations of an escaped path, or the reason why it
// is rejected.
func readPath(escaped string) (paths []string, reason string) {
	var r pathReadings
	if reason := r.read(escaped); reason != "" {
		return nil, reason
	}
	return r.list, ""
}

func TestAllReadingsOfPathAreFound(t *testing.T) {
	for in, want := range map[string]string{ // the prefix "!" marks a rejection
		"/":                                "/",
		"/a/b":                             "/a/b",
		"/a/b/":                            "/a/b/",
		"/a%20b":                           "/a b",
		"/%61":                             "/a",
		"/a...b/.c/..d":                    "/a...b/.c/..d",
		"/caf%C3%A9":                       "/café",
		"/@scope%2fname":                   "/@scope/name /@scope%2Fname",
		"/a%2Fb%2fc":                       "/a/b/c /a%2Fb%2Fc",
		"/a//b":                            "/a//b /a/b",
		"//a":                              "//a /a",
		"/a;x=1/b":                         "/a;x=1/b /a/b",
		"/%2561":                           "/%61 /a",
		"/100%25":                          "/100%",
		"/a%252fb":                         "/a%2fb /a/b",
		"/a%25zz%2561":                     "/a%zz%61 /a%zza",
		"/50%25/a":                         "/50%/a",
		"":                                 "!its path is none",
		"*":                                "!its path is none",
		"a":                                "!its path is none",
		"/%":                               "!its path is none",
		"/%zz":                             "!its path is none",
		"/..":                              "!its path has dot segments",
		"/a/../b":                          "!its path has dot segments",
		"/a/./b":                           "!its path has dot segments",
		"/.":                               "!its path has dot segments",
		"/%2e%2e/b":                        "!its path has dot segments",
		"/a%2f..%2fb":                      "!its path has dot segments",
		"/.%2e":                            "!its path has dot segments",
		"/%252e%252e/b":                    "!its path has dot segments",
		"/a/%25zz/%252e%252e/%252e%252e/b": "!its path has dot segments",
		"/a/%252e%252e/b%25":               "!its path has dot segments",
		"/a/..;/b":                         "!its path has dot segments",
		"/a/..;x=1":                        "!its path has dot segments",
		"/a/..%3bx":                        "!its path has dot segments",
		`/a\b`:                             "!its path has a backslash or a control character",
		"/a%5cb":                           "!its path has a backslash or a control character",
		"/a%255cb":                         "!its path has a backslash or a control character",
		"/a%00b":                           "!its path has a backslash or a control character",
		"/a%2500":                          "!its path has a backslash or a control character",
		"/a%0d%0aX":                        "!its path has a backslash or a control character",
		"/a%7f":                            "!its path has a backslash or a control character",
		"/%c0%af":                          "!its path is not UTF-8",
		"/%ff":                             "!its path is not UTF-8",
		"/caf%C3%A9/\uff21":                "/café/Ａ /café/A",
		"/v1/\uff0e\uff0e/admin":           "!its path has dot segments",
		"/v1/%EF%BC%8E%EF%BC%8E/admin":     "!its path has dot segments",
		"/v1/\u2025/admin":                 "!its path has dot segments", // one character for two dots
		"/v1/.\u200b./admin":               "!its path has dot segments",
		"/v1/\u3002\u3002/admin":           "!its path has dot segments",
		"/v1/..\u2215admin":                "!its path has dot segments",
		"/v1\uff0f..\uff0fadmin":           "!its path has dot segments",
		"/v1/\uff052e\uff052e/admin":       "!its path has dot segments",
		"/v1/x\uff3cy":                     `!its path has a backslash or a control character`,
		"/v1/.. /admin":                    "!its path has dot segments",
		"/v1/%2e%2e%20/admin":              "!its path has dot segments",
		"/v1/.../admin":                    "!its path has dot segments",
		"/v1/%u002e%u002e/admin":           "!its path is none",
		"/v1/%25u002e%25u002e/admin":       "!its path has an invalid escape",
		"/v1/%C0%AE%C0%AE/admin":           "!its path is not UTF-8",
		"/v1/%E0%80%AE%E0%80%AE/admin":     "!its path is not UTF-8",
		"/v1/a%C2%85b":                     "!its path has a character that some servers treat as a line break or ignore",
		"/v1/a%EF%BF%BDb":                  "!its path has a character that some servers treat as a line break or ignore",
		"/wiki/\u0645\u06cc\u200c\u062e":   "/wiki/\u0645\u06cc\u200c\u062e /wiki/\u0645\u06cc\u062e",
		"/col\u00b7lecci\u00f3":            "/col\u00b7lecci\u00f3 /col.lecci\u00f3",
		"/admin.":                          "/admin. /admin",
		"/admin%20":                        "/admin  /admin",
		"/admin%3fx":                       "/admin?x /admin",
		"/a;x=%2e%2e/b":                    "/a;x=../b /a/b",
		"/%2525252525252561b":              "!its path is escaped over and over",
	} {
		paths, reason := readPath(in)
		if refusal, ok := strings.CutPrefix(want, "!"); ok {
			if reason != refusal || len(paths) > 0 {
				t.Errorf("%s: %q, refused as %q", in, paths, reason)
			}
			continue
		}
		if reason != "" || len(paths) == 0 {
			t.Errorf("%s: refused as %q", in, reason)
			continue
		}
		if usual, _, _ := strings.Cut(want, " /"); paths[0] != usual {
			t.Errorf("%s: is %q first", in, paths)
		}
		for p := range strings.SplitSeq(strings.ReplaceAll(want, " /", "\x00/"), "\x00") {
			if !slices.Contains(paths, p) {
				t.Errorf("%s: %q is not among %q", in, p, paths)
			}
		}
	}
}

// A request with long or many paths takes little of the server's CPU time and memory, even with
// many rules that deny paths. The test measures the allocated memory as a proxy for the work. The
// control reads the same path without limits.
func TestPathReadingsAreLimited(t *testing.T) {
	const limit = 4 << 20
	l := newLab(t, true, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	l.rules.Rules = nil
	for i := range 199 {
		rule := brig.EgressRule{Host: labHost, Deny: true}
		for j := range 50 {
			rule.Paths = append(rule.Paths, fmt.Sprintf("/Admin/%d/%d*", i, j))
		}
		l.rules.Rules = append(l.rules.Rules, rule)
	}
	l.rules.Rules = append(l.rules.Rules, brig.EgressRule{Host: labHost})
	n := &inspection{inspector: l.inspector, host: labHost, port: 443, secure: true}
	work := func(r *http.Request) (allocated int64, refused *refusal) {
		r.RequestURI = r.URL.RequestURI()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		x := &exchange{n: n, in: r}
		escaped, methods, refused := n.check(r)
		if refused == nil {
			refused = x.checkReadings(escaped, methods)
		}
		runtime.ReadMemStats(&after)
		if x.charged != 0 {
			t.Errorf("%d bytes are still charged", x.charged)
		}
		return int64(after.TotalAlloc - before.TotalAlloc), refused
	}
	longer := strings.Repeat("\ufdfa", 20_000) // NFKC makes it eleven times longer
	kept := "/" + strings.Repeat("aB/", maxPath/3-4)
	escapes := func(i int) string { // spells the same path differently for each i
		var b strings.Builder
		for bit := range 12 {
			b.WriteString([]string{"a", "%61"}[i>>bit&1])
		}
		return "/" + b.String()
	}
	for _, c := range []struct {
		name, path string
		field      func(i int) string // values of a header field that names a path
		status     int
	}{
		{"an ordinary path", "/v1/x", nil, http.StatusOK},
		{"a long path", kept, nil, http.StatusOK},
		{"a denied path", "/ADMIN/198/49/x", nil, http.StatusForbidden},
		{"a path that becomes longer", "/" + longer, nil, http.StatusRequestURITooLong},
		{"half a path that becomes longer", "/" + longer[:2700], nil, http.StatusOK},
		{"a path that can be read in many ways", strings.Repeat("/x", 20_000) + "/a.;b/c./.d", nil, http.StatusRequestURITooLong},
		{"a shorter one", strings.Repeat("/x", 3_000) + "/a.;b/c.//%252561%3fd;%EF%BC%A1%C2%B7x%25e2%2580%258b.", nil, http.StatusBadRequest},
		{"many fields", "/v1/x", escapes, http.StatusBadRequest},
		{"a long field", "/v1/x", func(int) string { return "/" + strings.Repeat("a", maxPath) }, http.StatusBadRequest},
		{"one field many times", "/v1/x", func(int) string { return "/v1/y" }, http.StatusOK},
	} {
		r := l.request("GET", c.path, nil)
		for i := range 2_000 {
			if c.field != nil {
				r.Header["X-Original-Url"] = append(r.Header["X-Original-Url"], c.field(i))
			}
		}
		n, refused := work(r)
		status := http.StatusOK
		if refused != nil {
			status = refused.status
		}
		attack.RecordCase("NET-11", "work of "+c.name, n > limit)
		if status != c.status || n > limit {
			t.Errorf("%s: %d %+v, %d KiB are allocated", c.name, status, refused, n>>10)
		}
	}
	if res, text := l.do(l.client(false), l.request("GET", kept, nil)); res.StatusCode != http.StatusOK {
		t.Errorf("a long path: %d %s", res.StatusCode, text)
	}
	if res, text := l.do(l.client(true), l.request("GET", "/"+longer[:15_000], nil)); res.StatusCode != http.StatusRequestURITooLong {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 4 {
		_ = withoutEnds(lookalikePath(longer))
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n < limit {
		t.Errorf("control: four readings allocate %d KiB", n>>10)
	}
}
