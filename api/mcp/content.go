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

// picture is the image that a value has among its forms.
func picture(forms map[string]json.RawMessage) mcp.Content {
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

// blob is a file's content as a client is shown it.
func blob(uri string, data []byte) mcp.Content {
	kind := mediaType(uri)
	if strings.HasPrefix(kind, "image/") && kind != "image/svg+xml" {
		return &mcp.ImageContent{Data: data, MIMEType: kind, Meta: mcp.Meta{"uri": uri}}
	}
	return &mcp.EmbeddedResource{Resource: contents(uri, kind, data)}
}

// contents is a resource's: text if it is some.
func contents(uri, kind string, data []byte) *mcp.ResourceContents {
	c := &mcp.ResourceContents{URI: uri, MIMEType: kind}
	if text := string(data); text != "" && isText(text) {
		c.Text = text
	} else {
		c.Blob = append([]byte{}, data...) // an empty file is one all the same
	}
	return c
}

func isText(s string) bool { return strings.ToValidUTF8(s, "") == s && !strings.ContainsRune(s, 0) }

// mediaType is what the name of a file says of its content.
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
