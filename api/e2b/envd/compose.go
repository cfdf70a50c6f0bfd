package envd

import (
	"net/http"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/internal/exactjson"
)

// maxComposed limits the body of a request to compose, in bytes.
const maxComposed = 1 << 20

// compose handles POST /files/compose.
func (e *Envd) compose(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Sources     []string `json:"source_paths"`
		Destination string   `json:"destination"`
		User        string   `json:"username"`
	}
	body, err := httpapi.ReadDocument(w, r, maxComposed)
	if err != nil && brig.KindOf(err) != brig.InvalidArgument {
		e.fail(w, r, "", err) // for example, the memory budget is exhausted
		return
	}
	if err != nil || exactjson.Unmarshal(body, &in) != nil {
		writeError(w, http.StatusBadRequest, "the body cannot be read")
		return
	}
	if len(in.Sources) == 0 || in.Destination == "" {
		writeError(w, http.StatusBadRequest, "source_paths and destination are needed")
		return
	}
	to, ok := e.filePath(w, r, in.User, in.Destination)
	if !ok {
		return
	}
	from := make([]brig.Path, len(in.Sources))
	for i, name := range in.Sources {
		if from[i], ok = e.filePath(w, r, in.User, name); !ok {
			return
		}
	}
	made, err := e.service.Files(callOf(r.Context()).box.ID).Compose(r.Context(), from, to)
	if err != nil {
		e.fail(w, r, "", err)
		return
	}
	answer(w, http.StatusOK, toUploaded(made))
}
