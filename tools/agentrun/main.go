// Command agentrun calls AgentRun's control plane with Alibaba Cloud's own
// client library, which signs requests as the service requires. The provider's
// tests call their test double with it, to prove that the double is faithful.
// It is a separate module, so that the library is not a dependency of Brig.
//
// Usage: agentrun ADDRESS KEY-ID SECRET [TOKEN]
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/alibabacloud-go/darabonba-openapi/v2/client"
	"github.com/alibabacloud-go/tea/dara"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("usage: agentrun ADDRESS KEY-ID SECRET [TOKEN]")
	}
	config := &client.Config{
		Endpoint: &args[0], AccessKeyId: &args[1], AccessKeySecret: &args[2],
		Protocol: dara.String("http"), RegionId: dara.String("cn-hangzhou"),
	}
	if len(args) > 3 {
		config.SecurityToken = &args[3]
	}
	c, err := client.NewClient(config)
	if err != nil {
		return err
	}
	call := func(action, method, path string, query map[string]*string, body any) error {
		params := &client.Params{
			Action: &action, Version: dara.String("2025-09-10"), Protocol: dara.String("HTTP"), Pathname: &path, Method: &method,
			AuthType: dara.String("AK"), Style: dara.String("ROA"), ReqBodyType: dara.String("json"), BodyType: dara.String("json"),
		}
		answer, err := c.CallApi(params, &client.OpenApiRequest{Query: query, Body: body}, &dara.RuntimeOptions{})
		if err != nil {
			return fmt.Errorf("%s: %w", action, err)
		}
		b, err := json.Marshal(answer["body"])
		fmt.Println(action, string(b))
		return err
	}
	name := "official name"
	if err := call("ListTemplates", "GET", "/2025-09-10/templates", map[string]*string{
		"pageNumber": dara.String("1"), "templateName": &name, "status": dara.String("a*b~c+d/é"), "empty": dara.String(""),
	}, nil); err != nil {
		return err
	}
	if err := call("CreateTemplate", "POST", "/2025-09-10/templates", nil, map[string]any{
		"templateName": "official", "templateType": "CodeInterpreter", "cpu": 2, "memory": 4096,
	}); err != nil {
		return err
	}
	if err := call("GetTemplate", "GET", "/2025-09-10/templates/official", nil, nil); err != nil {
		return err
	}
	return call("DeleteTemplate", "DELETE", "/2025-09-10/templates/official", nil, nil)
}
