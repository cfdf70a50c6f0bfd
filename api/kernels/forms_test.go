package kernels

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// A client receives the MIME types that ipykernel sends. It receives Brig's own types only if
// it requests them.
func TestClientReceivesMIMETypesOfIPykernel(t *testing.T) {
	for _, c := range []struct{ text, mimes, want string }{
		{`"[1, 2]"`, "application/json", "text/plain"},
		{`"{'a': 1}"`, "application/json", "text/plain"},
		{`"<IPython.core.display.JSON object>"`, "application/json", "application/json text/plain"},
		{`"   a"`, "application/vnd.brig.frame+json text/html", "text/html text/plain"},
		{`"<Figure size>"`, "application/vnd.brig.chart+json image/png", "image/png text/plain"},
		{`"x"`, "application/vnd.other+json", "application/vnd.other+json text/plain"},
	} {
		data := map[string]json.RawMessage{"text/plain": json.RawMessage(c.text)}
		for _, mime := range strings.Fields(c.mimes) {
			data[mime] = json.RawMessage(`"x"`)
		}
		run := &codeExecution{r: &request{}}
		if got := strings.Join(slices.Sorted(maps.Keys(run.selectForms(data))), " "); got != c.want {
			t.Errorf("%s with %s: %s, want %s", c.text, c.mimes, got, c.want)
		}
		run.r.forms = true
		if got := run.selectForms(data); len(got) != len(data) {
			t.Errorf("%s with %s, all types requested: %v", c.text, c.mimes, got)
		}
	}
	message := func(metadata string) string {
		return `{"header": {"msg_id": "1", "msg_type": "execute_request"}, "content": {"code": "1"}` + metadata + `}`
	}
	for metadata, want := range map[string]bool{
		``: false, `, "metadata": {}`: false, `, "metadata": null`: false, `, "metadata": {"brig": {"forms": true}}`: true,
		`, "metadata": {"brig": {"forms": "yes"}}`: false, `, "metadata": {"BRIG": {"FORMS": true}}`: false, `, "metadata": []`: false,
	} {
		r, err := parse([]byte(message(metadata)))
		if err != nil || r.forms != want {
			t.Errorf("%s: %+v, %v", metadata, r, err)
		}
	}
}
