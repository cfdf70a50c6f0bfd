package interpreter

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/brig-run/brig/internal/testenv"
)

// TestDecodingNeedsLittleMemory verifies that decoding a line with many small values needs little
// more memory than the line itself. As a control, the same line is decoded without the limit.
func TestDecodingNeedsLittleMemory(t *testing.T) {
	const count, limit = 1 << 20, 8 << 20
	for name, line := range map[string]string{
		"members":      `{"type":"display","data":{` + strings.Repeat(`"":0,`, count) + `"":0}}`,
		"elements":     `{"type":"installed","packages":[` + strings.Repeat(`"",`, count) + `""]}`,
		"own members":  `{` + strings.Repeat(`"type":"",`, count) + `"type":"display"}`,
		"many objects": `{"data":` + strings.Repeat(`{},"data":`, count) + `{}}`,
	} {
		line := []byte(line)
		var m *Message
		if n := testenv.HeapGrowth(func() { m = decodeMessage(line) }); n > limit || m.Type != "" {
			t.Errorf("%s: %d MiB, type %q", name, n>>20, m.Type)
		}
	}
	var names []byte // distinct member names
	for i := range count {
		names = append(append(append(names, '"'), strings.Repeat("x", i%7)+string(rune('0'+i%10))+string(rune('a'+i/10%26))+string(rune('a'+i/260%26))+string(rune('a'+i/6760%26))+string(rune('a'+i/175760%26))...), `":0,`...)
	}
	line := []byte(`{"type":"display","data":{` + string(names) + `"":0}}`)
	if n := testenv.HeapGrowth(func() { decodeMessage(line) }); n > limit {
		t.Errorf("different members: %d MiB", n>>20)
	}
	control := new(Message)
	if n := testenv.HeapGrowth(func() { _ = json.Unmarshal(line, control) }); n < 4*limit {
		t.Errorf("the control takes %d MiB", n>>20)
	}
}

// TestMessageValuesMayHaveManyParts verifies that the values of a message may have any number of
// parts, and that the messages of drivers are within the limit.
func TestMessageValuesMayHaveManyParts(t *testing.T) {
	value := "[" + strings.Repeat(`{"a":[1,2]},`, 100_000) + "0]"
	line := `{"type":"display","nonce":"n","data":{"application/json":` + value + `,"text/plain":"a,\",{[b"}}`
	if m := decodeMessage([]byte(line)); m.Type != "display" || string(m.Data["application/json"]) != value || len(m.Data) != 2 {
		t.Errorf("type %q with %d values", m.Type, len(m.Data))
	}
	numbers := "[" + strings.Repeat("1,", 100_000) + "0]"
	line = `{"type":"end","nonce":"n","state":` + numbers + `,"returned":` + numbers + `,"closed":true}`
	if m := decodeMessage([]byte(line)); m.Type != "end" || string(m.Returned) != numbers || string(m.State) != numbers {
		t.Errorf("type %q with %d bytes returned", m.Type, len(m.Returned))
	}
	line = `{"type":"installed","packages":[` + strings.Repeat(`"p",`, 99) + `"p"]}`
	if m := decodeMessage([]byte(line)); len(m.Packages) != 100 {
		t.Errorf("%d packages", len(m.Packages))
	}
}

// TestLongExceptionTextsAreShortened verifies that long texts of exceptions are shortened, and that
// other texts are unchanged.
func TestLongExceptionTextsAreShortened(t *testing.T) {
	long := "begin" + strings.Repeat("ü", 1<<20) + "end"
	for _, c := range []struct{ text, begin, end string }{{long, "begin", "end"}, {"short", "short", "short"}} {
		b, err := json.Marshal(Message{
			Type: "end", Name: c.text, Value: c.text, Traceback: c.text, Failure: &Failure{Name: c.text, Message: c.text, Traceback: c.text},
		})
		if err != nil {
			t.Fatal(err)
		}
		m := decodeMessage(b)
		for i, got := range []string{m.Name, m.Value, m.Traceback, m.Failure.Name, m.Failure.Message, m.Failure.Traceback} {
			if len(got) > maxText || !utf8.ValidString(got) || !strings.HasPrefix(got, c.begin) || !strings.HasSuffix(got, c.end) {
				t.Errorf("text %d: %d bytes, %.20q", i, len(got), got)
			}
		}
	}
}
