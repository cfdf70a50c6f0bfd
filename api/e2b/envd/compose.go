package envd

import (
	"encoding/json"
	"net/http"

	"github.com/brig-run/brig"
)

// mostComposed bounds the body of a request to compose, in bytes.
const mostComposed = 1 << 20

// compose answers POST /files/compose.
func (e *Envd) compose(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Sources     []string `json:"source_paths"`
		Destination string   `json:"destination"`
		User        string   `json:"username"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostComposed)).Decode(&in); err != nil {
		refuse(w, http.StatusBadRequest, "the body cannot be read")
		return
	}
	if len(in.Sources) == 0 || in.Destination == "" {
		refuse(w, http.StatusBadRequest, "source_paths and destination are needed")
		return
	}
	to, ok := e.place(w, r, in.User, in.Destination)
	if !ok {
		return
	}
	from := make([]brig.Path, len(in.Sources))
	for i, name := range in.Sources {
		if from[i], ok = e.place(w, r, in.User, name); !ok {
			return
		}
	}
	made, err := e.service.Files(callOf(r.Context()).box.ID).Compose(r.Context(), from, to)
	if err != nil {
		e.fail(w, r, "", err)
		return
	}
	answer(w, http.StatusOK, described(made))
}
