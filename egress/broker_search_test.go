package egress

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"html"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// FuzzForms checks that the matches of an encoded value do not depend on the
// pieces in which the text arrives.
func FuzzForms(f *testing.F) {
	for _, text := range []string{value, `\u0073k-live/%22q+1&quot;&lt;=C3=A9>&amp;`, "c2stbGl2ZS8i\r\ncSsxIjzDqT4m", "73 6b 2d 6c:69", "&", "%2", `\`, `\ud83d\ude0`} {
		f.Add([]byte(text), []byte{0, 3})
	}
	f.Fuzz(func(t *testing.T, text, sizes []byte) {
		s := newScrubber([]boundSecret{{Secret: key(), value: []byte(value)}}, nil).values
		got, err := io.ReadAll(s.newReader(&pieces{text: text, sizes: sizes}, nil))
		if want := s.newScan().replaceAll(string(text)); err != nil || string(got) != want {
			t.Errorf("%q in pieces %v: %q, %v; whole %q", text, sizes, got, err, want)
		}
	})
}

// written returns a value in the forms in which servers write it.
func written(v string) map[string]string {
	forms := map[string]string{
		"itself": v, "a query": url.QueryEscape(v), "a path": url.PathEscape(v), "HTML": html.EscapeString(v),
		"JSON": strings.Trim(string(escapeJSON([]byte(v))), "\n"), "hex": hex.EncodeToString([]byte(v)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(v))),
		"hex:": strings.Join(splitChunks(hex.EncodeToString([]byte(v)), 2), ":"),
	}
	for _, format := range []string{`\u%04x`, "%%%02X", "=%02x", `\x%02x`, "&#%d;", "&#x%x;"} {
		var b strings.Builder
		for _, c := range []byte(v) {
			fmt.Fprintf(&b, format, c)
		}
		forms[fmt.Sprintf(format, 'a')] = b.String()
	}
	for name, fold := range map[string]string{"mail, folded": "=\r\n", "mail, folded by line feeds": "=\n", "continued": "\\\n", "continued after a return": "\\\r\n"} {
		// Characters that begin an escape in quoted-printable, or follow a
		// backslash, are escaped.
		plain := strings.NewReplacer("=", "=3D", "\n", "=0A").Replace(v)
		if fold[0] == '\\' {
			plain = strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(v)
		}
		forms[name] = plain[:len(plain)/3] + fold + plain[len(plain)/3:]
		if cut := forms[name][:len(plain)/3]; strings.HasSuffix(cut, `\`) || len(cut) > 1 && strings.ContainsAny(cut[len(cut)-2:], "=") {
			delete(forms, name) // the fold would split an escape
		}
	}
	for pad := range 3 {
		for _, coding := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
			coded := coding.EncodeToString([]byte("xyz"[:pad] + v))
			forms[fmt.Sprintf("base64 %d %d", pad, len(coded))] = coded
			forms[fmt.Sprintf("base64, folded %d %d", pad, len(coded))] = strings.Join(splitChunks(coded, 7), "\r\n ")
		}
	}
	for i, order := range []bool{true, false} {
		var b strings.Builder
		for _, c := range []byte(v) {
			if order {
				b.WriteString("\x00" + string(c))
			} else {
				b.WriteString(string(c) + "\x00")
			}
		}
		forms[fmt.Sprintf("UTF-16 %d", i)] = b.String()
	}
	return forms
}

// Values of the maximum length are found in all forms, including repetitive
// ones. Searching the same text takes the same work for every value.
func TestSearchFindsLongestValuesInAllForms(t *testing.T) {
	letter := strings.Repeat("a", brig.MaxBrokered)
	later := "xyz" + strings.Repeat("0", brig.MaxBrokered-3)
	mixed := strings.Repeat(`k/"1%41&amp;\n=`, brig.MaxBrokered/15)
	for _, v := range []string{letter, later, mixed, "12345678", `a%41\"b=41&#65;`} {
		s := newScrubber([]boundSecret{{Secret: key(), value: []byte(v)}}, nil).values
		for form, text := range written(v) {
			got, err := io.ReadAll(s.newReader(strings.NewReader("<<\n"+text+"\n>>"), nil))
			middle := text[len(text)/3 : len(text)*2/3]
			without := strings.ReplaceAll(strings.ReplaceAll(string(got), placeholder, ""), string(encodeUTF16(binary.BigEndian, []byte(placeholder))), "")
			without = strings.ReplaceAll(without, hex.EncodeToString([]byte(placeholder)), "")
			without = strings.ReplaceAll(without, string(encodeUTF16(binary.LittleEndian, []byte(placeholder))), "")
			if err != nil || !strings.HasSuffix(string(got), "\n>>") || strings.Contains(without, middle) {
				t.Errorf("%.20q, %s: %d bytes, %.100q, %v", v, form, len(got), got, err)
			}
		}
	}
}

// A part of a value does not match, in any encoding.
func TestSearchIgnoresPartsOfValues(t *testing.T) {
	const v = "sk-live-51HqLyjWDarjtT1zdp7dcXYZ"
	s := newScrubber([]boundSecret{{Secret: key(), value: []byte(v)}}, nil).values
	for cut := range len(v) {
		for _, part := range []string{v[:cut], v[cut+1:], v[:cut] + "~" + v[cut+1:]} {
			for form, text := range written(part) {
				c := s.newScan()
				c.push([]byte("<"+text+">"), true)
				if len(c.hits) > 0 || c.comparisons > 0 {
					t.Errorf("%q %s: %d hits, %d compared", part, form, len(c.hits), c.comparisons)
				}
			}
		}
	}
}

// No text takes more work than another text of the same length, unless it contains a value: a
// filter with observable false positives would reveal bits of the values' hashes.
func TestSearchWorkIsConstant(t *testing.T) {
	for _, values := range []int{1, 2, 64} {
		var grants []boundSecret
		for i := range values {
			grants = append(grants, boundSecret{Secret: key(), value: fmt.Appendf(nil, "sk-live-51HqLyjWDarjtT1zdp7d%04d", i)})
		}
		c := newScrubber(grants, nil).values.newScan()
		let, windows := 0, 0 // false positives of a filter of twelve bits: the control
		for range 200 {
			c.push([]byte(rand.Text()+rand.Text()+`%41\n`), true)
			for v, groups := range c.groups {
				for i, g := range groups {
					for h := range g.patterns {
						windows++
						if c.view[v].hash[i]>>52 == h>>52 {
							let++
						}
					}
				}
			}
		}
		for range 20 << 10 {
			c.push([]byte(rand.Text()), true)
		}
		if len(c.hits) > 0 || c.comparisons > 0 {
			t.Errorf("%d values: %d hits, %d compared", values, len(c.hits), c.comparisons)
		}
		if values == 64 && let == 0 {
			t.Errorf("control: of %d windows a filter lets none through", windows)
		}
		c.push(grants[len(grants)-1].value, true)
		if len(c.hits) == 0 || c.comparisons == 0 {
			t.Errorf("%d values: the value is not found", values)
		}
	}
}
