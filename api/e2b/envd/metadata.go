package envd

import (
	"mime"
	"net/http"
	"strings"

	"github.com/brig-run/brig"
)

// Limits of a file's metadata in bytes, for one key and in total.
const (
	maxMetadataKey = 246
	maxMetadata    = 4096
)

const metadataPrefix = "X-Metadata-"

// metadata returns the file metadata in the headers, by lower-case keys.
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
		case key == "" || len(key) > maxMetadataKey:
			return nil, brig.Errorf(brig.InvalidArgument, "a metadata key has 1 to %d bytes", maxMetadataKey)
		case strings.IndexFunc(key+value, outside) >= 0:
			return nil, brig.Errorf(brig.InvalidArgument, "metadata is printable ASCII: '%s' is not", truncate(key))
		case size > maxMetadata:
			return nil, brig.Errorf(brig.InvalidArgument, "metadata has at most %d bytes", maxMetadata)
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	return out, nil
}

// longest is the maximum length of a path, in bytes.
const longest = 4096

// disposition returns the name of a form field and its file name including
// directories, which package multipart would remove.
func disposition(header string) (field, file string, err error) {
	_, params, err := mime.ParseMediaType(header)
	if err != nil {
		return "", "", brig.Errorf(brig.InvalidArgument, "a part of the form has no readable name").Because(err)
	}
	file = params["filename"]
	if len(file) > longest || strings.ContainsRune(file, 0) {
		return "", "", brig.Errorf(brig.InvalidArgument, "'%s' cannot be a file's name", truncate(file))
	}
	return params["name"], file, nil
}
