package mcp

import (
	"encoding/base64"
	"encoding/json"
	"mime"
	"path"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

// imageContent returns the image among the representations of a value, or nil.
func imageContent(forms map[string]json.RawMessage) mcp.Content {
	for _, kind := range []string{"image/png", "image/jpeg"} {
		var text string
		if json.Unmarshal(forms[kind], &text) != nil {
			continue
		}
		data, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(text, "\n", ""))
		if err == nil {
			return &mcp.ImageContent{Data: data, MIMEType: kind}
		}
	}
	return nil
}

// fileContent returns the content of a file in a format that clients can display.
func fileContent(uri string, data []byte) mcp.Content {
	kind := mediaType(uri)
	if strings.HasPrefix(kind, "image/") && kind != "image/svg+xml" {
		return &mcp.ImageContent{Data: data, MIMEType: kind, Meta: mcp.Meta{"uri": uri}}
	}
	return &mcp.EmbeddedResource{Resource: contents(uri, kind, data)}
}

// contents returns the contents of a resource, as text if data is valid text.
func contents(uri, kind string, data []byte) *mcp.ResourceContents {
	c := &mcp.ResourceContents{URI: uri, MIMEType: kind}
	if text := string(data); text != "" && isText(text) {
		c.Text = text
	} else {
		c.Blob = append([]byte{}, data...) // not nil, so that an empty file has a blob, too
	}
	return c
}

func isText(s string) bool { return strings.ToValidUTF8(s, "") == s && !strings.ContainsRune(s, 0) }

// mediaType returns the media type for a file name.
func mediaType(name string) string {
	ext := strings.ToLower(path.Ext(name))
	if kind, ok := brig.ArtifactTypes[ext]; ok {
		return kind
	}
	if slices.Contains([]string{".txt", ".log", ".md", ".py", ".js", ".ts", ".sh"}, ext) {
		return "text/plain"
	}
	kind, _, err := mime.ParseMediaType(mime.TypeByExtension(ext))
	if err != nil {
		return "application/octet-stream"
	}
	return kind
}
