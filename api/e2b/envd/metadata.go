package envd

import (
	"mime"
	"net/http"
	"strings"

	"github.com/brig-run/brig"
)

// How large the metadata of a file may be, in bytes: one key, and all of it.
const (
	mostKey      = 246
	mostMetadata = 4096
)

const metadataPrefix = "X-Metadata-"

// metadata is what the headers say of a file, by lower-case keys.
func metadata(h http.Header) (map[string]string, error) {
	var out map[string]string
	size := 0
	for name, values := range h {
		if len(name) < len(metadataPrefix) || !strings.EqualFold(name[:len(metadataPrefix)], metadataPrefix) {
			continue
		}
		key, value := strings.ToLower(name[len(metadataPrefix):]), strings.Join(values, ",")
		outside := func(c rune) bool { return c < ' ' || c > '~' }
		switch size += len(key) + len(value); {
		case key == "" || len(key) > mostKey:
			return nil, brig.Errorf(brig.InvalidArgument, "a metadata key has 1 to %d bytes", mostKey)
		case strings.IndexFunc(key+value, outside) >= 0:
			return nil, brig.Errorf(brig.InvalidArgument, "metadata is printable ASCII: '%s' is not", clip(key))
		case size > mostMetadata:
			return nil, brig.Errorf(brig.InvalidArgument, "metadata has at most %d bytes", mostMetadata)
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	return out, nil
}

// longest bounds a path, in bytes.
const longest = 4096

// disposition reads the name of a form's field and the whole name of its file,
// directories included: multipart's own function leaves them out.
func disposition(header string) (field, file string, err error) {
	_, params, err := mime.ParseMediaType(header)
	if err != nil {
		return "", "", brig.Errorf(brig.InvalidArgument, "a part of the form has no readable name").Because(err)
	}
	file = params["filename"]
	if len(file) > longest || strings.ContainsRune(file, 0) {
		return "", "", brig.Errorf(brig.InvalidArgument, "'%s' cannot be a file's name", clip(file))
	}
	return params["name"], file, nil
}
