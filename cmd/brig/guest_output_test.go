package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/brig-run/brig/internal/attack"
)

// TestTerminalFilterPassesTextAndColors checks that a terminal receives a guest's output as text
// and colors only, regardless of how the output is split into writes.
func TestTerminalFilterPassesTextAndColors(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\r\n":                       "plain\ttext\r\n",
		"\x1b[1;31mred\x1b[0m \x1b[38:2:1mx":    "\x1b[1;31mred\x1b[0m \x1b[38:2:1mx",
		"\x1b]52;c;ZXZpbA==\x07":                "�]52;c;ZXZpbA==�",
		"\x1b]0;title\x1b\\":                    "�]0;title�\\",
		"\x1b[2J\x1b[6n\x1b[?1049h":             "�[2J�[6n�[?1049h",
		"\x1bP+q544e\x1b\\":                     "�P+q544e�\\",
		"\u009b31m \u009d52;c;x\u009c \u0085":   "�31m �52;c;x� �",
		"\x9b31m":                               "�31m",
		"a\u202eb\u2066c\u2028":                 "a�b�c�",
		"café 日本 😀":                             "café 日本 😀",
		"\x1b":                                  "�",
		"\x1b[31":                               "�[31",
		"half \xe6\x97":                         "half ��",
		"\x1b[" + strings.Repeat("1", 40) + "m": "�[" + strings.Repeat("1", 40) + "m",
		"bell\a back\b del\x7f":                 "bell� back� del�",
	} {
		for size := 1; size <= len(in); size++ {
			var out bytes.Buffer
			f := &terminalFilter{to: &out}
			for rest := []byte(in); len(rest) > 0; {
				n := min(size, len(rest))
				if _, err := f.Write(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if err := finish(f); err != nil || out.String() != want {
				t.Errorf("%q in pieces of %d: %q, want %q, %v", in, size, out.String(), want, err)
			}
		}
	}
	attack.Case(t, "GST-04", "escapes in a sandbox's log on a terminal")
	// A writer that is not a terminal receives the bytes unchanged.
	var raw bytes.Buffer
	if w := (&cli{}).guestOutput(&raw); w != &raw {
		t.Error("a file is filtered")
	}
	attack.RecordMutant("GST-04", "the same to a file", "the filter", true)
}

// TestPrintJSONEscapes checks that JSON on a terminal has no control
// characters, and decodes to the same value.
func TestPrintJSONEscapes(t *testing.T) {
	var out bytes.Buffer
	c := &cli{stdout: &out}
	text := "a\u009b31m\u202e\u2028\x7f\u0085 é日 <&>"
	if err := c.printJSON(map[string]string{"x": text}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(out.String(), func(r rune) bool { return r != '\n' && isUnsafeRune(r) }) || !strings.Contains(out.String(), "é日 <&>") {
		t.Errorf("it prints %q", out.String())
	}
	var back map[string]string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back["x"] != text {
		t.Errorf("it is read as %q, %v", back["x"], err)
	}
}
