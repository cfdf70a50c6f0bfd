package mcp

// addTools is the only list of the tools.
func (d *desk) addTools(s *toolbox) {
	add(s, tool{
		name: "run_code", title: "Run code", what: removes, world: true,
		doc: "Run code in Python, JavaScript, TypeScript or bash. With a sandbox, variables and files stay for the next call, and the last expression's value is the result. Without one it runs in a fresh sandbox.",
	}, d.runCode)
	add(s, tool{
		name: "run_shell", title: "Run a shell command", what: removes, world: true,
		doc: "Run a script with the image's shell, in a sandbox or in a fresh one.",
	}, d.runShell)

	add(s, tool{
		name: "create_sandbox", title: "Create a sandbox", what: makes,
		doc: "Create a sandbox that stays until it is not used for ttl_seconds.",
	}, d.createSandbox)
	add(s, tool{name: "list_sandboxes", title: "List sandboxes", what: looks, doc: "List sandboxes, newest first."}, d.listSandboxes)
	add(s, tool{name: "get_sandbox", title: "Get a sandbox", what: looks, doc: "Say what is known of a sandbox."}, d.getSandbox)
	add(s, tool{name: "extend_sandbox", title: "Extend a sandbox's life", what: makes, doc: "Move the time at which a sandbox ends if nobody uses it."}, d.extendSandbox)
	add(s, tool{name: "remove_sandbox", title: "Remove a sandbox", what: removes, doc: "End a sandbox with everything in it, and forget it."}, d.removeSandbox)

	add(s, tool{name: "create_context", title: "Create a code context", what: makes, doc: "Start one more interpreter in a sandbox, with variables of its own."}, d.createContext)
	add(s, tool{name: "list_contexts", title: "List code contexts", what: looks, doc: "List a sandbox's interpreters, oldest first."}, d.listContexts)
	add(s, tool{name: "interrupt_context", title: "Interrupt code", what: makes, doc: "Interrupt the code that runs in a context, as Ctrl-C does."}, d.interruptContext)
	add(s, tool{name: "restart_context", title: "Restart a code context", what: removes, doc: "End a context's interpreter with its variables, and start another."}, d.restartContext)
	add(s, tool{name: "remove_context", title: "Remove a code context", what: removes, doc: "End a context for good."}, d.removeContext)

	add(s, tool{name: "read_file", title: "Read a file", what: looks, doc: "Read a file of a sandbox, or a part of it."}, d.readFile)
	add(s, tool{name: "write_file", title: "Write a file", what: removes, doc: "Write a file of a sandbox. One that is there is replaced."}, d.writeFile)
	add(s, tool{name: "list_files", title: "List files", what: looks, doc: "List what is in a directory of a sandbox."}, d.listFiles)
	add(s, tool{name: "remove_file", title: "Remove a file", what: removes, doc: "Remove a file of a sandbox, or a directory with all that is below."}, d.removeFile)

	add(s, tool{name: "start_process", title: "Start a process", what: makes, doc: "Start a program in a sandbox that runs on by itself, for example a server."}, d.startProcess)
	add(s, tool{name: "list_processes", title: "List processes", what: looks, doc: "List the programs that were started in a sandbox, oldest first."}, d.listProcesses)
	add(s, tool{name: "process_output", title: "Read a process's output", what: looks, doc: "Read what a program wrote, and wait a while for more."}, d.processOutput)
	add(s, tool{
		name: "signal_process", title: "Signal a process", what: removes, doc: "Send a signal to a program and its group.",
		choices: map[string][]any{"signal": {"SIGTERM", "SIGINT", "SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGSTOP", "SIGCONT"}},
	}, d.signalProcess)
	add(s, tool{name: "http_request", title: "Call a port", what: makes, doc: "Make an HTTP request to a server that listens on a port in a sandbox, on its loopback, too."}, d.httpRequest)
	add(s, tool{name: "read_log", title: "Read a sandbox's log", what: looks, doc: "Read the end of what a sandbox's programs wrote, also after its end."}, d.readLog)

	add(s, tool{name: "list_images", title: "List images", what: looks, doc: "List the images from which sandboxes can be made."}, d.listImages)
	add(s, tool{name: "pull_image", title: "Pull an image", what: makes, world: true, doc: "Fetch an image from a registry. Operators may."}, d.pullImage)
	add(s, tool{name: "list_templates", title: "List templates", what: looks, doc: "List the templates from which sandboxes can be made."}, d.listTemplates)
}
