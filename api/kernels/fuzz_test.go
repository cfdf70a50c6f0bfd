package kernels

import (
	"encoding/json"
	"testing"
)

// FuzzParse verifies that every input is either parsed as a request with a response or
// rejected.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"header":{"msg_id":"m","username":"anonymous","session":"s","msg_type":"execute_request","version":"5.0"},"parent_header":{},"metadata":{},"content":{"code":"6*7","silent":false,"store_history":true,"user_expressions":{},"allow_stdin":false}}`,
		`{"header":{"msg_id":"m","msg_type":"shutdown_request"},"channel":"control","content":{"restart":true}}`,
		`{"header":{"msg_id":"m","msg_type":"kernel_info_request"},"channel":"shell","content":null}`,
		`{"header":{"msg_id":"m","msg_type":"execute_request"},"content":{"code":"\ud800","user_expressions":{"a":[1],"\u0001":{},"b":null},"user_expressions":null}}`,
		`{"header":[]}`, `[]`, ``, `{"header":{"msg_id":"","msg_type":"x"}}`, "{\"header\":{\"msg_id\":\"\xff\"}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parse(data)
		if err != nil {
			return
		}
		if r.id == "" || r.kind == "" || len(r.id) > maxName || !json.Valid(r.header) || len(r.header) > maxHeader {
			t.Fatalf("%q was taken as %+v", data, r)
		}
		if (r.kind == "execute_request") != (r.run != nil) || r.run != nil && r.run.Code == nil {
			t.Fatalf("%q has nothing to run", data)
		}
		if n := r.size(); n <= 0 || n > len(data) {
			t.Fatalf("%q takes %d bytes of %d", data, n, len(data))
		}
		b, err := json.Marshal(reply{Parent: r.header})
		if err != nil || !json.Valid(b) {
			t.Fatalf("%q cannot be answered: %v", data, err)
		}
	})
}
