package egress

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// reflectHandler echoes the key of a request, in the form that the path
// selects.
func reflectHandler(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Authorization")
	if key == "" { // a later request, which gets the key of an earlier one
		key = value
	}
	whole := func(text string) { io.WriteString(w, text) }
	switch r.URL.Path {
	case "/header":
		w.Header().Set("X-Echo", "a "+key+" b")
		w.Header()["X-"+hex.EncodeToString([]byte(key))] = []string{"in a name"}
		w.Header()["X-Cookie"] = []string{"one", key}
	case "/location":
		w.Header().Set("Location", "https://evil.test/?k="+url.QueryEscape(key))
		w.WriteHeader(http.StatusFound)
	case "/error":
		w.WriteHeader(http.StatusInternalServerError)
		whole("<h1>" + html.EscapeString(key) + "</h1>")
	case "/bytes":
		for _, c := range []byte("<<" + key + ">>") {
			w.Write([]byte{c})
			w.(http.Flusher).Flush()
		}
	case "/length":
		text := "<<" + key + ">>"
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		w.Header().Set("Content-MD5", "sum")
		whole(text)
	case "/json":
		b, err := json.Marshal(map[string]string{"key": key})
		whole(fmt.Sprintf("%s %v", b, err))
	case "/plainjson":
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		if err := e.Encode(map[string]string{"key": key}); err != nil {
			whole(err.Error())
		}
	case "/base64":
		whole(base64.StdEncoding.EncodeToString([]byte(key)))
	case "/within":
		for pad := range 3 {
			whole(base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", pad)+key+"yyy")) + "\n")
			whole(base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("x", pad)+key+"yyy")) + "\n")
		}
	case "/hex":
		whole(hex.EncodeToString([]byte(key)) + strings.ToUpper(hex.EncodeToString([]byte(key))))
	case "/escaped":
		whole(url.QueryEscape(key) + url.PathEscape(key) + strings.ToLower(url.QueryEscape(key)))
	case "/allescaped": // each character, in each possible escape
		for _, r := range key {
			fmt.Fprintf(w, "\\u%04x", r)
		}
		for _, format := range []string{"\\x%02X", "%%%02x", "=%02X"} {
			whole("\n")
			for _, c := range []byte(key) {
				fmt.Fprintf(w, format, c)
			}
		}
		for _, format := range []string{"&#%d;", "&#x%X;"} {
			whole("\n")
			for _, r := range key {
				fmt.Fprintf(w, format, r)
			}
		}
		whole("\n" + key[:5] + url.QueryEscape(key[5:9]) + html.EscapeString(key[9:]))
	case "/utf16":
		for _, big := range []bool{true, false} {
			for _, u := range utf16.Encode([]rune(key)) {
				if big {
					u = u<<8 | u>>8
				}
				w.Write([]byte{byte(u), byte(u >> 8)})
			}
		}
	case "/folded":
		for width := 8; width < 80; width++ {
			coded := base64.StdEncoding.EncodeToString([]byte("user:" + key))
			digits := hex.EncodeToString([]byte(key))
			for len(coded) > width {
				whole(coded[:width] + "\r\n")
				coded = coded[width:]
			}
			whole(coded + "\n" + strings.Join(splitChunks(digits, 2+width%2*2), ":") + "\n" + strings.Join(splitChunks(digits, 2+width%2*2), " ") + "\n\n")
		}
	case "/gzip":
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		io.WriteString(z, key)
		z.Close()
	case "/zlib":
		w.Header().Set("Content-Encoding", "deflate")
		z := zlib.NewWriter(w)
		io.WriteString(z, key)
		z.Close()
	case "/flate":
		w.Header().Set("Content-Encoding", "deflate")
		z, _ := flate.NewWriter(w, 5)
		io.WriteString(z, key)
		z.Close()
	case "/br":
		w.Header().Set("Content-Encoding", "br")
		whole("not really " + key)
	case "/twice":
		w.Header().Set("Content-Encoding", "gzip, gzip")
		whole("not really " + key)
	case "/trailer":
		w.Header().Set("Trailer", "X-Sum, Content-Digest, X-Amz-Checksum-Sha256")
		w.Header().Set("X-Goog-Hash", "md5=sum")
		whole("body")
		w.Header().Set("X-Sum", key)
		w.Header().Set("Content-Digest", "sha-256=:sum:")
		w.Header().Set("X-Amz-Checksum-Sha256", "sum")
		w.Header().Set(http.TrailerPrefix+"Repr-Digest", "sha-256=:sum:")
		w.Header().Set(http.TrailerPrefix+"X-More", key)
	case "/empty", "/nothing", "/unchanged": // a trailer without a body before it
		w.Header().Set("Trailer", "X-Sum")
		switch r.URL.Path {
		case "/empty":
			w.Header().Set("Content-Length", "0")
		case "/nothing":
			w.WriteHeader(http.StatusNoContent)
		case "/unchanged":
			w.WriteHeader(http.StatusNotModified)
		}
		w.(http.Flusher).Flush()
		w.Header().Set("X-Sum", key)
	case "/half":
		w.Header().Set("Content-Length", "1000")
		whole("<<" + key[:len(key)/2])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	case "/asked":
		whole(r.Header.Get("Accept-Encoding") + "|" + r.Header.Get("Range") + "|" + r.Header.Get("If-Range"))
	}
}

func splitChunks(s string, n int) (out []string) {
	for c := range slices.Chunk([]byte(s), n) {
		out = append(out, string(c))
	}
	return out
}

// recoverValue returns the decoding by which a text yields the value, or "".
func recoverValue(text string) string {
	for name, form := range map[string]string{
		"itself": value, "in hex": hex.EncodeToString([]byte(value)), "in base64": base64.StdEncoding.EncodeToString([]byte(value)),
		"in a query": url.QueryEscape(value), "in HTML": html.EscapeString(value), "in a path": url.PathEscape(value),
	} {
		if strings.Contains(text, form) || strings.Contains(strings.ToLower(text), strings.ToLower(form)) {
			return name
		}
	}
	for _, c := range strings.Split(text, "\n\n") { // without the line folding
		flat := strings.NewReplacer("\r\n", "", "\n", "", " ", "", ":", "").Replace(c)
		if strings.Contains(flat, hex.EncodeToString([]byte(value[3:]))) || strings.Contains(flat, base64.RawStdEncoding.EncodeToString([]byte("user:" + value))[12:20]) {
			return "folded"
		}
	}
	if strings.Contains(strings.ReplaceAll(text, "\x00", ""), value[:8]) {
		return "in UTF-16"
	}
	for _, marks := range []string{"%", "=", "\\x"} {
		for line := range strings.FieldsSeq(text) {
			if plain, err := url.PathUnescape(strings.ReplaceAll(line, marks, "%")); err == nil && strings.Contains(plain, value) {
				return "escaped by " + marks
			}
		}
	}
	if strings.Contains(html.UnescapeString(text), value) {
		return "in entities"
	}
	for line := range strings.FieldsSeq(text) {
		if plain, err := strconv.Unquote(`"` + line + `"`); err == nil && strings.Contains(plain, value) {
			return "escaped by \\u"
		}
		for _, coding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			if b, err := coding.DecodeString(strings.TrimRight(line, "=")); err == nil && bytes.Contains(b, []byte(value[2:len(value)-2])) {
				return "within base64"
			}
		}
		var m map[string]string
		if json.Unmarshal([]byte(line), &m) == nil && m["key"] == value {
			return "in JSON"
		}
	}
	return ""
}

func TestScrubberMasksValuesInResponses(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		for path, want := range map[string]string{ // the text that the guest receives instead
			"/header": "", "/location": placeholder, "/error": "<h1>" + placeholder + "</h1>",
			"/bytes": "<<" + placeholder + ">>", "/length": "<<" + placeholder + ">>",
			"/json": `{"key":"` + placeholder + `"}`, "/plainjson": `{"key":"` + placeholder + `"}`,
			"/base64": base64.StdEncoding.EncodeToString([]byte(placeholder)), "/within": "", "/hex": hex.EncodeToString([]byte(placeholder)),
			"/escaped": placeholder + placeholder, "/allescaped": "", "/utf16": "", "/folded": "", "/gzip": placeholder, "/zlib": placeholder, "/flate": placeholder,
			"/trailer": "body", "/br": "compressed in a way", "/twice": "compressed in a way", "/asked": "identity||",
			"/empty": "", "/nothing": "", "/unchanged": "",
		} {
			for _, carried := range []bool{true, false} {
				l := newLab(t, true, http.HandlerFunc(reflectHandler))
				l.keys = []Secret{key()}
				r := l.request("GET", path, nil)
				r.Header.Set("Accept-Encoding", "gzip, br")
				r.Header.Set("Range", "bytes=0-3")
				r.Header.Set("If-Range", `"x"`)
				if carried {
					r.Header.Set("Authorization", placeholder)
				}
				res, body := l.do(l.client(h2), r)
				var all strings.Builder
				res.Header.Write(&all)
				res.Trailer.Write(&all)
				all.WriteString(body)
				how := recoverValue(all.String())
				if how != "" {
					t.Errorf("%s: the value is there %s: %s", path, how, all.String())
				}
				attack.RecordCase("SEC-03", fmt.Sprintf("%s, h2 %t, carried %t", path, h2, carried), how != "")
				if !strings.Contains(all.String(), want) && !strings.Contains(all.String(), url.QueryEscape(want)) {
					t.Errorf("%s: %s", path, all.String())
				}
				if strings.Contains(body, "compressed in a way") != (res.StatusCode == 502) {
					t.Errorf("%s: %s", path, res.Status)
				}
				if path == "/trailer" && (strings.Contains(all.String(), "sum:") || res.Header["X-Goog-Hash"] != nil || res.Trailer["X-Amz-Checksum-Sha256"] != nil) {
					t.Errorf("%s: a sum of the answer is told: %s", path, all.String())
				}
				if path == "/trailer" && (res.Trailer.Get("X-Sum") != placeholder || res.Trailer.Get("X-More") != placeholder) {
					t.Errorf("trailer %v", res.Trailer)
				}
				if h2 && slices.Contains([]string{"/empty", "/nothing", "/unchanged"}, path) && res.Trailer.Get("X-Sum") != placeholder {
					t.Errorf("%s: trailer %v", path, res.Trailer)
				}
				if path == "/length" && res.Header.Get("Content-Md5") != "" {
					t.Error("the sum of what came is told")
				}
			}
		}
	}
}

// Without the scrubber, the guest would receive the value in each of these
// forms. This proves that the scrubber causes the results of the test above.
func TestValuesLeakWithoutScrubber(t *testing.T) {
	for _, path := range []string{
		"/header", "/location", "/error", "/bytes", "/length", "/json", "/plainjson", "/base64", "/within", "/hex", "/escaped", "/trailer", "/br",
		"/allescaped", "/utf16", "/folded",
	} {
		l := newLab(t, true, http.HandlerFunc(reflectHandler))
		r := l.request("GET", path, nil)
		r.Header.Set("Authorization", value)
		res, body := l.do(l.client(false), r)
		var all strings.Builder
		res.Header.Write(&all)
		res.Trailer.Write(&all)
		how := recoverValue(all.String() + body)
		if how == "" {
			t.Errorf("%s: nothing to be seen in %s%s", path, all.String(), body)
		}
		attack.RecordMutant("SEC-03", path, "the scrubber", how != "")
	}
}

// The scrubber also finds the user:password pair of basic credentials, for any
// user.
func TestScrubberMasksBasicCredentials(t *testing.T) {
	for _, user := range []string{"", "u", "us", "use", "user"} {
		l := newLab(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.Header.Get("Authorization"))
		}))
		l.keys = []Secret{key()}
		sent := "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+placeholder))
		r := l.request("GET", "/", nil)
		r.Header.Set("Authorization", sent)
		if _, body := l.do(l.client(false), r); body != sent {
			t.Errorf("%s: the guest has %q", user, body)
		}
	}
}

// URLs and some JSON encoders escape the two signs of base64.
func TestScrubberMasksEscapedBase64(t *testing.T) {
	for _, v := range []string{"my?pass>word~x?y>z?1234?a", "??????????", ">>>>>>>>>>>>"} {
		s := newScrubber([]boundSecret{{Secret: key(), value: []byte(v)}}, nil).values
		for _, before := range []string{"", "u", "us", "user:"} {
			coded := base64.StdEncoding.EncodeToString([]byte(before + v))
			lines := strings.Join(splitChunks(coded, 8), "\n")
			for how, text := range map[string]string{
				"as it is": coded, "JSON": strings.ReplaceAll(coded, "/", `\/`), "a URL": url.QueryEscape(coded),
				"HTML": strings.NewReplacer("/", "&#x2F;", "+", "&#43;").Replace(coded), "lines": strings.ReplaceAll(lines, "/", `\/`),
			} {
				for _, width := range []int{1, 3, 100} {
					got, err := io.ReadAll(s.newReader(&pieces{text: []byte("<" + text + ">"), sizes: []byte{byte(width)}}, nil))
					// The remainder is the padding and the characters that
					// share bits with the surrounding text.
					remaining := strings.NewReplacer(placeholder, "", "x", "").Replace(string(got))
					if err != nil || strings.Contains(remaining, text[len(text)/3:len(text)/2]) {
						t.Errorf("%s %q, %s: %s, %v", v, before, how, got, err)
					}
				}
			}
		}
	}
}

// A stream that ends within a value does not reveal the part that was sent.
func TestTruncatedResponseRevealsNoPartOfValue(t *testing.T) {
	l := newLab(t, true, http.HandlerFunc(reflectHandler))
	l.keys = []Secret{key()}
	r := l.request("GET", "/half", nil)
	r.Header.Set("Authorization", placeholder)
	res, err := l.client(false).Do(r)
	if err != nil {
		return // the connection is closed before the header is sent
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil || len(body) != 0 {
		t.Errorf("%q, %v", body, err)
	}
}

func TestTwoSecretsAreInsertedAndMasked(t *testing.T) {
	l := newLab(t, true, http.HandlerFunc(echo))
	one, two := key(), key(brig.SecretBody)
	two.Name, two.Placeholder = "other", placeholder+"-and-more"
	l.keys = []Secret{one, two}
	r := l.request("POST", "/", strings.NewReader(two.Placeholder+" "+placeholder))
	r.Header.Set("Authorization", placeholder+" "+two.Placeholder)
	_, body := l.do(l.client(false), r)
	if recoverValue(body) != "" || !strings.Contains(body, placeholder) {
		t.Error(body)
	}
	if e := l.lastEvent(Request); fmt.Sprint(e.Secrets) != "[stripe other]" {
		t.Errorf("%+v", e)
	}
}

// A new value is recognized from the first request that uses it, even on
// existing connections.
func TestRotatedValueIsMaskedFromFirstUse(t *testing.T) {
	l := newLab(t, true, http.HandlerFunc(echo))
	now := "first-value"
	s := key()
	s.Value = func(context.Context) ([]byte, error) { return []byte(now), nil }
	l.keys = []Secret{s}
	c := l.client(true)
	for _, now = range []string{"first-value", "second-value"} {
		r := l.request("GET", "/", nil)
		r.Header.Set("Authorization", placeholder)
		if _, body := l.do(c, r); strings.Contains(body, now) || !strings.Contains(body, placeholder) {
			t.Error(body)
		}
	}
}
