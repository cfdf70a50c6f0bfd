"""The JSON documents of Brig's REST API. Generated from docs/openapi.json by `make docs`. Do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

if TYPE_CHECKING:
    from typing_extensions import NotRequired


class Alert(TypedDict):
    hint: NotRequired[str]
    labels: NotRequired[dict[str, str]]
    name: str
    resolved: NotRequired[str]
    severity: str
    since: str
    state: str
    summary: str
    threshold: float
    value: float


class Alerts(TypedDict):
    alerts: list[Alert]


class Artifact(TypedDict):
    content_b64: str
    mime_type: str
    mode: NotRequired[int]
    path: str
    size: int


class Attempt(TypedDict):
    code: str
    message: str
    provider: str
    took_ms: float


class AttestRequest(TypedDict):
    pass


class BuildFailure(TypedDict):
    message: str
    step: str


class BuildRequest(TypedDict):
    name: NotRequired[str]
    packages: NotRequired[list[str]]
    suite: NotRequired[str]


class BuiltTemplate(TypedDict):
    created: str
    id: str
    last_used: NotRequired[str]
    name: str
    tags: list[TemplateTag]
    updated: str
    uses: int


class Capabilities(TypedDict):
    enforces: dict[str, Enforcement]
    isolation: str
    provider: str
    uplinks: bool


class Ceilings(TypedDict):
    digests_only: NotRequired[bool]
    images: NotRequired[list[str]]
    limits: NotRequired[MostLimits]
    max_life_ms: NotRequired[int]
    max_pause_ms: NotRequired[int]
    max_timeout_ms: NotRequired[int]
    max_ttl_ms: NotRequired[int]
    screening: NotRequired[Screening]


class CeilingsRequest(TypedDict):
    digests_only: NotRequired[bool]
    images: NotRequired[list[str]]
    limits: NotRequired[MostLimitsRequest]
    max_life_ms: NotRequired[int]
    max_pause_ms: NotRequired[int]
    max_timeout_ms: NotRequired[int]
    max_ttl_ms: NotRequired[int]
    screening: NotRequired[Screening]


class Change(TypedDict):
    entry: NotRequired[Entry]
    kinds: list[str]
    name: str


class Chunk(TypedDict):
    data: NotRequired[str]
    data_b64: NotRequired[str]
    offset: NotRequired[int]


class CodeAnswer(TypedDict):
    context_id: str
    duration_ms: float
    error: Union[Exception, None]
    execution_count: int
    interrupted: bool
    lost: bool
    oom_killed: bool
    queued_ms: float
    results: list[Rich]
    sandbox_ended: NotRequired[str]
    started: str
    stderr: str
    stderr_b64: NotRequired[str]
    stderr_bytes: int
    stderr_cut: NotRequired[Cut]
    stdout: str
    stdout_b64: NotRequired[str]
    stdout_bytes: int
    stdout_cut: NotRequired[Cut]
    text: str
    timed_out: bool
    truncated: bool


class CodeRequest(TypedDict):
    code: str
    context_id: NotRequired[str]
    env: NotRequired[dict[str, str]]
    language: NotRequired[str]
    timeout_ms: NotRequired[int]
    uncounted: NotRequired[bool]


class CodeStarted(TypedDict):
    context_id: str
    execution_count: int


class ComposeRequest(TypedDict):
    destination: str
    source_paths: list[str]
    user: NotRequired[str]


class ConfigField(TypedDict):
    default: NotRequired[Any]
    description: NotRequired[str]
    destination: NotRequired[bool]
    label: str
    max: NotRequired[float]
    min: NotRequired[float]
    multiline: NotRequired[bool]
    name: str
    options: NotRequired[list[str]]
    placeholder: NotRequired[str]
    readonly: NotRequired[bool]
    required: NotRequired[bool]
    secret: NotRequired[bool]
    type: Literal["string", "integer", "number", "boolean", "array"]


class Context(TypedDict):
    created: str
    cwd: str
    env: NotRequired[dict[str, str]]
    execution_count: int
    flavor: str
    id: str
    language: str
    sandbox: str
    state: str
    version: str


class ContextRequest(TypedDict):
    cwd: NotRequired[str]
    env: NotRequired[dict[str, str]]
    language: NotRequired[str]


class Contexts(TypedDict):
    contexts: list[Context]


class Copies(TypedDict):
    sandboxes: list[Sandbox]


class Cut(TypedDict):
    head: int
    tail: int


class Deliveries(TypedDict):
    deliveries: list[Delivery]


class Delivery(TypedDict):
    at: str
    attempts: int
    delivered: bool
    duration_ms: int
    error: NotRequired[str]
    event: str
    id: str
    sandbox: str
    status: int
    type: str


class Egress(TypedDict):
    bandwidth: NotRequired[int]
    rules: list[EgressRule]


class EgressRequest(TypedDict):
    bandwidth: NotRequired[Union[int, str]]
    rules: list[EgressRule]


class EgressChange(TypedDict):
    bandwidth: NotRequired[Union[int, str]]
    rules: list[EgressRule]


class EgressRule(TypedDict):
    cidr: NotRequired[str]
    deny: NotRequired[bool]
    host: NotRequired[str]
    methods: NotRequired[list[str]]
    paths: NotRequired[list[str]]
    ports: NotRequired[list[int]]


class Enforcement(TypedDict):
    at: NotRequired[str]
    evidence: NotRequired[list[str]]
    gaps: NotRequired[list[str]]
    help: NotRequired[str]
    how: NotRequired[str]
    level: Literal["none", "gaps", "boundary"]


class Entries(TypedDict):
    entries: list[Entry]


class Entry(TypedDict):
    group: str
    metadata: NotRequired[dict[str, str]]
    mode: int
    modified: str
    name: str
    owner: str
    path: str
    size: int
    target: NotRequired[str]
    target_mode: NotRequired[int]
    target_type: NotRequired[str]
    type: str


class Error(TypedDict):
    code: str
    field: NotRequired[str]
    fields: NotRequired[list[FieldError]]
    hint: NotRequired[str]
    kind: Literal["not_initialized", "invalid_config", "connection_failed", "creation_failed", "timeout", "out_of_memory", "blocked_by_policy", "rate_limited", "provider_unavailable", "invalid_argument", "unauthenticated", "permission_denied", "not_found", "already_exists", "failed_precondition", "unimplemented", "canceled", "internal"]
    message: str


class ErrorAnswer(TypedDict):
    error: Error


class Exception(TypedDict):
    name: str
    traceback: str
    value: str


class ExecRequest(TypedDict):
    command: NotRequired[list[str]]
    cwd: NotRequired[str]
    env: NotRequired[dict[str, str]]
    shell: NotRequired[str]
    stdin: NotRequired[str]
    stdin_b64: NotRequired[str]
    survive: NotRequired[bool]
    timeout_ms: NotRequired[int]
    user: NotRequired[str]


class Execution(TypedDict):
    command: NotRequired[list[str]]
    cwd: NotRequired[str]
    done: bool
    duration_ms: int
    env: NotRequired[dict[str, str]]
    exec: str
    exit_code: int
    oom_killed: bool
    sandbox: str
    sandbox_ended: NotRequired[str]
    shell: NotRequired[str]
    signal: str
    started: str
    stderr: str
    stderr_b64: NotRequired[str]
    stderr_bytes: int
    stderr_cut: NotRequired[Cut]
    stdout: str
    stdout_b64: NotRequired[str]
    stdout_bytes: int
    stdout_cut: NotRequired[Cut]
    survive: NotRequired[bool]
    timed_out: bool
    timeout_ms: NotRequired[int]
    truncated: bool
    user: NotRequired[str]


class Executions(TypedDict):
    execs: list[Execution]


class Exit(TypedDict):
    at: str
    code: int
    oom_killed: bool
    reason: str


class ExtendRequest(TypedDict):
    ttl_ms: NotRequired[int]


class FieldError(TypedDict):
    field: str
    message: str


class File(TypedDict):
    content: NotRequired[str]
    content_b64: NotRequired[str]
    mode: NotRequired[Union[int, str]]
    path: str


class ForkRequest(TypedDict):
    count: NotRequired[int]
    default_cwd: NotRequired[str]
    default_user: NotRequired[str]
    egress: NotRequired[EgressRequest]
    env: NotRequired[dict[str, str]]
    labels: NotRequired[dict[str, str]]
    limits: NotRequired[LimitsRequest]
    name: NotRequired[str]
    pause_at_end: NotRequired[bool]
    pause_files_only: NotRequired[bool]
    paused: NotRequired[bool]
    ttl_ms: NotRequired[int]
    volumes: NotRequired[list[VolumeMount]]


class Grant(TypedDict):
    expires: str
    grant: str
    id: str
    key_id: str
    role: Literal["viewer", "member", "admin", "operator"]
    sandboxes: NotRequired[list[str]]
    scopes: NotRequired[list[str]]
    tenant: str


class GrantRequest(TypedDict):
    role: NotRequired[Literal["viewer", "member", "admin", "operator"]]
    sandboxes: NotRequired[list[str]]
    scopes: NotRequired[list[str]]
    ttl_ms: NotRequired[int]


class Head(TypedDict):
    hash: str
    key: NotRequired[str]
    seq: int
    signature: NotRequired[str]
    tenant: str
    time: str


class Health(TypedDict):
    status: str


class Image(TypedDict):
    alias: NotRequired[str]
    config: NotRequired[ImageConfig]
    created: NotRequired[str]
    digest: str
    files: int
    manifest: NotRequired[str]
    names: list[str]
    notes: NotRequired[list[str]]
    size: int
    source: str


class ImageConfig(TypedDict):
    account: NotRequired[str]
    command: NotRequired[list[str]]
    entrypoint: NotRequired[list[str]]
    env: NotRequired[dict[str, str]]
    labels: NotRequired[dict[str, str]]
    platform: NotRequired[str]
    user: NotRequired[str]
    working_dir: NotRequired[str]


class Images(TypedDict):
    images: list[Image]


class Key(TypedDict):
    created: NotRequired[str]
    expires: NotRequired[str]
    id: str
    kind: NotRequired[str]
    last_used: NotRequired[str]
    name: str
    prefix: NotRequired[str]
    role: Literal["viewer", "member", "admin", "operator"]
    scopes: NotRequired[list[str]]
    tenant: str


class KeyRequest(TypedDict):
    kind: NotRequired[Literal["brig", "e2b"]]
    name: str
    role: Literal["viewer", "member", "admin", "operator"]
    scopes: NotRequired[list[str]]
    tenant: NotRequired[str]
    ttl_ms: NotRequired[int]


class Keys(TypedDict):
    keys: list[Key]


class KillRequest(TypedDict):
    pass


class LifecycleEvent(TypedDict):
    at: str
    id: str
    labels: dict[str, str]
    name: str
    origin: NotRequired[str]
    reason: NotRequired[str]
    sandbox: str
    type: str


class LifecycleEvents(TypedDict):
    events: list[LifecycleEvent]


class Limits(TypedDict):
    cpus: NotRequired[float]
    disk: NotRequired[int]
    memory: NotRequired[int]
    open_files: NotRequired[int]
    output: NotRequired[int]
    processes: NotRequired[int]


class LimitsRequest(TypedDict):
    cpus: NotRequired[float]
    disk: NotRequired[Union[int, str]]
    memory: NotRequired[Union[int, str]]
    open_files: NotRequired[int]
    output: NotRequired[Union[int, str]]
    processes: NotRequired[int]


class Line(TypedDict):
    actor: str
    detail: NotRequired[dict[str, str]]
    hash: str
    kind: NotRequired[str]
    op: str
    phase: str
    prev: str
    sandbox: NotRequired[str]
    seq: int
    tenant: str
    time: str


class LogEnd(TypedDict):
    pass


class MakeDirRequest(TypedDict):
    path: str
    user: NotRequired[str]


class MostLimits(TypedDict):
    cpus: NotRequired[float]
    disk: NotRequired[int]
    memory: NotRequired[int]
    open_files: NotRequired[int]
    output: NotRequired[int]
    processes: NotRequired[int]


class MostLimitsRequest(TypedDict):
    cpus: NotRequired[float]
    disk: NotRequired[Union[int, str]]
    memory: NotRequired[Union[int, str]]
    open_files: NotRequired[int]
    output: NotRequired[Union[int, str]]
    processes: NotRequired[int]


MoveRequest = TypedDict(
    "MoveRequest",
    {
        "from": "str",
        "to": "str",
        "user": "NotRequired[str]",
    },
)


class NewKey(TypedDict):
    created: NotRequired[str]
    expires: NotRequired[str]
    id: str
    key: str
    kind: NotRequired[str]
    last_used: NotRequired[str]
    name: str
    prefix: NotRequired[str]
    role: Literal["viewer", "member", "admin", "operator"]
    scopes: NotRequired[list[str]]
    tenant: str


class NewSession(TypedDict):
    created: str
    csrf: str
    email: NotRequired[str]
    expires: str
    id: str
    issuer: NotRequired[str]
    key_id: NotRequired[str]
    last_used: str
    name: str
    role: Literal["viewer", "member", "admin", "operator"]
    subject: NotRequired[str]
    tenant: str


class Page(TypedDict):
    head: Head
    lines: list[Line]
    next: int


class Pause(TypedDict):
    at: str
    bytes: int
    files_only: NotRequired[bool]
    left_ms: int


class PauseRequest(TypedDict):
    files_only: NotRequired[bool]


class PingEvent(TypedDict):
    event: Literal["ping"]


class Placement(TypedDict):
    only: NotRequired[bool]
    prefer: NotRequired[Literal["cheapest", "region"]]
    provider: NotRequired[str]
    regions: NotRequired[list[str]]


class Pool(TypedDict):
    shelves: list[Shelf]


class Process(TypedDict):
    command: NotRequired[list[str]]
    cwd: NotRequired[str]
    env: NotRequired[dict[str, str]]
    no_input: NotRequired[bool]
    pid: int
    result: NotRequired[Result]
    running: bool
    shell: NotRequired[str]
    started: str
    tag: NotRequired[str]
    terminal: NotRequired[Terminal]
    timeout_ms: NotRequired[int]
    user: NotRequired[str]
    written: int


class ProcessInput(TypedDict):
    data: NotRequired[str]
    data_b64: NotRequired[str]


class ProcessRequest(TypedDict):
    command: NotRequired[list[str]]
    cwd: NotRequired[str]
    env: NotRequired[dict[str, str]]
    no_input: NotRequired[bool]
    shell: NotRequired[str]
    tag: NotRequired[str]
    terminal: NotRequired[Terminal]
    timeout_ms: NotRequired[int]
    user: NotRequired[str]


class Processes(TypedDict):
    processes: list[Process]


class ProgramError(TypedDict):
    code: NotRequired[str]
    hint: NotRequired[str]
    message: str
    name: str
    traceback: NotRequired[str]


class Progress(TypedDict):
    done: int
    step: str
    total: int


class Provider(TypedDict):
    active: bool
    capabilities: NotRequired[Capabilities]
    config: NotRequired[dict[str, Any]]
    configured: bool
    description: str
    driver: str
    fields: list[ConfigField]
    home: NotRequired[bool]
    id: str
    languages: list[str]
    rev: NotRequired[int]
    runs_only: NotRequired[bool]
    tags: list[str]
    terms: Terms
    title: str
    up: bool
    users: int
    why: NotRequired[str]


class ProviderRequest(TypedDict):
    activate: NotRequired[bool]
    config: NotRequired[dict[str, Any]]
    rev: NotRequired[int]
    terms: NotRequired[TermsChange]
    test: NotRequired[bool]


class ProviderTest(TypedDict):
    code: NotRequired[str]
    exit_code: int
    hint: NotRequired[str]
    latency_ms: float
    message: str
    stderr: str
    stdout: str
    success: bool


class Providers(TypedDict):
    providers: list[Provider]


class PullRequest(TypedDict):
    insecure: NotRequired[bool]
    password: NotRequired[str]
    platform: NotRequired[str]
    ref: str
    username: NotRequired[str]


class Quota(TypedDict):
    cpu_ms_per_day: NotRequired[int]
    egress_bytes_per_day: NotRequired[int]
    execution_ms_per_day: NotRequired[int]
    executions: NotRequired[int]
    executions_per_day: NotRequired[int]
    gib_seconds_per_day: NotRequired[float]
    outputs: NotRequired[int]
    paused: NotRequired[int]
    rate: NotRequired[float]
    rate_per_key: NotRequired[float]
    sandboxes: NotRequired[int]
    storage: NotRequired[int]
    volumes: NotRequired[int]
    workspaces: NotRequired[int]


class QuotaRequest(TypedDict):
    cpu_ms_per_day: NotRequired[int]
    egress_bytes_per_day: NotRequired[Union[int, str]]
    execution_ms_per_day: NotRequired[int]
    executions: NotRequired[int]
    executions_per_day: NotRequired[int]
    gib_seconds_per_day: NotRequired[float]
    outputs: NotRequired[Union[int, str]]
    paused: NotRequired[int]
    rate: NotRequired[float]
    rate_per_key: NotRequired[float]
    sandboxes: NotRequired[int]
    storage: NotRequired[Union[int, str]]
    volumes: NotRequired[Union[int, str]]
    workspaces: NotRequired[Union[int, str]]


class RegistryLogin(TypedDict):
    password: NotRequired[str]
    username: NotRequired[str]


class ReplayRequest(TypedDict):
    since: str


class Resealed(TypedDict):
    secrets: int


class RestoreRequest(TypedDict):
    version: int


class Result(TypedDict):
    done: bool
    duration_ms: int
    exec: str
    exit_code: int
    oom_killed: bool
    sandbox_ended: NotRequired[str]
    signal: str
    started: str
    stderr: str
    stderr_b64: NotRequired[str]
    stderr_bytes: int
    stderr_cut: NotRequired[Cut]
    stdout: str
    stdout_b64: NotRequired[str]
    stdout_bytes: int
    stdout_cut: NotRequired[Cut]
    timed_out: bool
    truncated: bool


class ResumeRequest(TypedDict):
    pass


class Rich(TypedDict):
    data: dict[str, Any]
    display_id: NotRequired[str]
    main: bool
    metadata: NotRequired[dict[str, Any]]
    update: NotRequired[bool]


class Route(TypedDict):
    attempts: NotRequired[list[Attempt]]
    provider: str
    reason: str


class Routing(TypedDict):
    attempts: NotRequired[int]
    order: NotRequired[list[str]]
    overflow: NotRequired[list[str]]
    prefer: NotRequired[Literal["cheapest", "region"]]
    regions: NotRequired[list[str]]
    rev: NotRequired[int]
    split: NotRequired[dict[str, int]]


class RoutingChange(TypedDict):
    attempts: NotRequired[int]
    order: NotRequired[list[str]]
    overflow: NotRequired[list[str]]
    prefer: NotRequired[str]
    regions: NotRequired[list[str]]
    rev: NotRequired[int]
    split: NotRequired[dict[str, int]]


class RunAnswer(TypedDict):
    artifacts: list[Artifact]
    artifacts_skipped: NotRequired[list[str]]
    done: bool
    duration_ms: int
    error: Union[ProgramError, None]
    exec: str
    exit_code: int
    has_result: bool
    id: NotRequired[str]
    image: NotRequired[str]
    oom_killed: bool
    pool: NotRequired[str]
    result: Any
    route: NotRequired[Route]
    sandbox: str
    sandbox_ended: NotRequired[str]
    signal: str
    started: str
    stderr: str
    stderr_b64: NotRequired[str]
    stderr_bytes: int
    stderr_cut: NotRequired[Cut]
    stdout: str
    stdout_b64: NotRequired[str]
    stdout_bytes: int
    stdout_cut: NotRequired[Cut]
    step: NotRequired[StepAnswer]
    timed_out: bool
    truncated: bool
    workspace: NotRequired[WorkspaceCommit]


class RunRequest(TypedDict):
    arguments: NotRequired[dict[str, Any]]
    code: NotRequired[str]
    command: NotRequired[list[str]]
    egress: NotRequired[EgressRequest]
    env: NotRequired[dict[str, str]]
    files: NotRequired[Union[list[File], dict[str, str]]]
    grace_ms: NotRequired[int]
    image: NotRequired[str]
    labels: NotRequired[dict[str, str]]
    language: NotRequired[Literal["python", "python3", "py", "javascript", "js", "node", "nodejs", "typescript", "ts", "bash", "sh", "shell"]]
    limits: NotRequired[LimitsRequest]
    name: NotRequired[str]
    placement: NotRequired[Placement]
    require: NotRequired[dict[str, str]]
    secrets: NotRequired[list[SecretUse]]
    stdin: NotRequired[str]
    stdin_b64: NotRequired[str]
    step: NotRequired[Step]
    timeout_ms: NotRequired[int]
    user: NotRequired[str]
    volumes: NotRequired[list[VolumeMount]]
    workspace: NotRequired[WorkspaceUse]


class RunSummary(TypedDict):
    artifacts: int
    duration_ms: int
    error: NotRequired[ProgramError]
    exit_code: int
    id: NotRequired[str]
    image: NotRequired[str]
    pool: NotRequired[str]
    provider: NotRequired[str]
    sandbox: str
    signal: NotRequired[str]
    started: str
    status: Literal["success", "error", "timeout", "out_of_memory"]
    stderr_bytes: int
    stdout_bytes: int


class Runs(TypedDict):
    next_cursor: str
    runs: list[RunSummary]


class Sandbox(TypedDict):
    command: NotRequired[list[str]]
    command_env: NotRequired[dict[str, str]]
    created: str
    cwd: NotRequired[str]
    default_cwd: NotRequired[str]
    default_user: NotRequired[str]
    digest: str
    egress: NotRequired[Egress]
    ended: NotRequired[str]
    enforcement: NotRequired[dict[str, Enforcement]]
    entrypoint: NotRequired[bool]
    env: NotRequired[dict[str, str]]
    exit: NotRequired[Exit]
    expires: NotRequired[str]
    fixed_lease: NotRequired[bool]
    freeze_after_ms: NotRequired[int]
    id: str
    image: NotRequired[str]
    labels: NotRequired[dict[str, str]]
    limits: NotRequired[Limits]
    name: str
    notes: NotRequired[list[str]]
    origin: NotRequired[str]
    pausable: NotRequired[bool]
    pause: NotRequired[Pause]
    pause_after_ms: NotRequired[int]
    pause_at_end: NotRequired[bool]
    pause_files_only: NotRequired[bool]
    placement: NotRequired[Placement]
    pool: NotRequired[str]
    provider: str
    require: NotRequired[dict[str, str]]
    route: NotRequired[Route]
    scoped_id: str
    secrets: NotRequired[list[SecretUse]]
    shell: NotRequired[str]
    state: Literal["creating", "running", "paused", "stopping", "stopped"]
    template: NotRequired[str]
    tenant: str
    timeout_ms: NotRequired[int]
    ttl_ms: NotRequired[int]
    user: NotRequired[str]
    volumes: NotRequired[list[VolumeMount]]
    workspace: NotRequired[WorkspaceUse]


class SandboxUsage(TypedDict):
    at: str
    cache: int
    cpu_ms: float
    disk: NotRequired[int]
    memory: int
    received: int
    sent: int


class Sandboxes(TypedDict):
    next_cursor: str
    sandboxes: list[Sandbox]


class ScreenRules(TypedDict):
    allow: NotRequired[list[str]]
    attributes: NotRequired[list[str]]
    calls: NotRequired[list[str]]
    commands: NotRequired[bool]
    imports: NotRequired[list[str]]
    only: NotRequired[bool]


class Screening(TypedDict):
    javascript: NotRequired[ScreenRules]
    others: NotRequired[bool]
    python: NotRequired[ScreenRules]


class Secret(TypedDict):
    allow: NotRequired[list[str]]
    created: str
    exclusive: bool
    hosts: list[str]
    name: str
    places: list[str]
    plain: NotRequired[bool]
    updated: str
    version: int


class SecretRequest(TypedDict):
    allow: NotRequired[list[str]]
    exclusive: NotRequired[bool]
    hosts: NotRequired[list[str]]
    places: NotRequired[list[Literal["header", "query", "body"]]]
    plain: NotRequired[bool]
    reveal: NotRequired[bool]
    value: NotRequired[str]
    value_b64: NotRequired[str]


class SecretUse(TypedDict):
    env: NotRequired[str]
    name: str


class Secrets(TypedDict):
    secrets: list[Secret]


class Session(TypedDict):
    created: str
    email: NotRequired[str]
    expires: str
    id: str
    issuer: NotRequired[str]
    key_id: NotRequired[str]
    last_used: str
    name: str
    role: Literal["viewer", "member", "admin", "operator"]
    subject: NotRequired[str]
    tenant: str


class Sessions(TypedDict):
    sessions: list[Session]


class Shelf(TypedDict):
    failed: int
    hits: int
    image: str
    language: str
    limits: Limits
    making: int
    misses: int
    provider: NotRequired[str]
    ready: int
    refill_ms: float
    target: int


class SignalRequest(TypedDict):
    signal: str


class Spec(TypedDict):
    command: NotRequired[list[str]]
    command_env: NotRequired[dict[str, str]]
    cwd: NotRequired[str]
    default_cwd: NotRequired[str]
    default_user: NotRequired[str]
    egress: NotRequired[EgressRequest]
    entrypoint: NotRequired[bool]
    env: NotRequired[dict[str, str]]
    fixed_lease: NotRequired[bool]
    freeze_after_ms: NotRequired[int]
    image: NotRequired[str]
    labels: NotRequired[dict[str, str]]
    limits: NotRequired[LimitsRequest]
    name: NotRequired[str]
    pausable: NotRequired[bool]
    pause_after_ms: NotRequired[int]
    pause_at_end: NotRequired[bool]
    pause_files_only: NotRequired[bool]
    placement: NotRequired[Placement]
    require: NotRequired[dict[str, str]]
    secrets: NotRequired[list[SecretUse]]
    shell: NotRequired[str]
    template: NotRequired[str]
    timeout_ms: NotRequired[int]
    ttl_ms: NotRequired[int]
    user: NotRequired[str]
    volumes: NotRequired[list[VolumeMount]]
    workspace: NotRequired[WorkspaceUse]


class Started(TypedDict):
    exec: str


class Step(TypedDict):
    count: NotRequired[int]
    packages: NotRequired[list[str]]
    state: NotRequired[dict[str, Any]]


class StepAnswer(TypedDict):
    outputs: list[Rich]
    packages: NotRequired[list[str]]
    state: NotRequired[dict[str, Any]]


class StopRequest(TypedDict):
    grace_ms: NotRequired[int]


class TagRequest(TypedDict):
    image: str
    name: str


TagTemplateRequest = TypedDict(
    "TagTemplateRequest",
    {
        "from": "NotRequired[str]",
        "tag": "str",
    },
)


class Template(TypedDict):
    boot_once: NotRequired[bool]
    built: NotRequired[BuiltTemplate]
    cwd: NotRequired[str]
    entrypoint: NotRequired[bool]
    env: NotRequired[dict[str, str]]
    image: str
    imports: NotRequired[list[str]]
    limits: NotRequired[Limits]
    name: str
    packages: NotRequired[list[str]]
    ready: NotRequired[TemplateCommand]
    ready_interval_ms: NotRequired[int]
    ready_timeout_ms: NotRequired[int]
    stand_in: NotRequired[str]
    start: NotRequired[TemplateCommand]
    ttl_ms: NotRequired[int]
    user: NotRequired[str]


class TemplateBuild(TypedDict):
    actor: str
    created: str
    cwd: NotRequired[str]
    env: NotRequired[dict[str, str]]
    failure: NotRequired[BuildFailure]
    files_sandbox: NotRequired[str]
    finished: NotRequired[str]
    id: str
    limits: NotRequired[Limits]
    ready: NotRequired[str]
    sandbox: NotRequired[str]
    start: NotRequired[str]
    started: NotRequired[str]
    status: Literal["waiting", "building", "ready", "error"]
    tags: list[str]
    template_id: str
    user: NotRequired[str]


class TemplateBuildLine(TypedDict):
    level: Literal["debug", "info", "warn", "error"]
    step: str
    text: str
    time: str


class TemplateBuildLog(TypedDict):
    build: TemplateBuild
    lines: list[TemplateBuildLine]
    next_offset: int


class TemplateBuildRequest(TypedDict):
    image: NotRequired[str]
    limits: NotRequired[TemplateLimits]
    no_cache: NotRequired[bool]
    ready: NotRequired[str]
    registry: NotRequired[RegistryLogin]
    start: NotRequired[str]
    steps: NotRequired[list[TemplateBuildStep]]
    tags: NotRequired[list[str]]
    template: NotRequired[str]


class TemplateBuildStep(TypedDict):
    command: NotRequired[str]
    cwd: NotRequired[str]
    destination: NotRequired[str]
    digest: NotRequired[str]
    env: NotRequired[dict[str, str]]
    mode: NotRequired[str]
    no_cache: NotRequired[bool]
    owner: NotRequired[str]
    source: NotRequired[str]
    type: Literal["run", "copy", "env", "workdir", "user"]
    user: NotRequired[str]


class TemplateCommand(TypedDict):
    command: NotRequired[list[str]]
    cwd: NotRequired[str]
    env: NotRequired[dict[str, str]]
    shell: NotRequired[str]
    user: NotRequired[str]


class TemplateDetails(TypedDict):
    builds: list[TemplateBuild]
    created: str
    id: str
    last_used: NotRequired[str]
    name: str
    tags: list[TemplateTag]
    updated: str
    uses: int


class TemplateFiles(TypedDict):
    present: bool


class TemplateLimits(TypedDict):
    cpus: NotRequired[float]
    memory: NotRequired[Union[int, str]]


class TemplateTag(TypedDict):
    assigned: str
    build: str
    tag: str


class Templates(TypedDict):
    templates: list[Template]


class Tenant(TypedDict):
    budget: NotRequired[float]
    ceilings: Ceilings
    created: NotRequired[str]
    name: str
    quota: Quota
    rev: NotRequired[int]


class TenantChange(TypedDict):
    budget: NotRequired[float]
    ceilings: NotRequired[CeilingsRequest]
    quota: NotRequired[QuotaRequest]
    rev: NotRequired[int]
    unscreened: NotRequired[bool]


class TenantRequest(TypedDict):
    budget: NotRequired[float]
    ceilings: NotRequired[CeilingsRequest]
    name: str
    quota: NotRequired[QuotaRequest]


class Tenants(TypedDict):
    tenants: list[Tenant]


class Terminal(TypedDict):
    columns: int
    rows: int


class Terms(TypedDict):
    max: NotRequired[int]
    region: NotRequired[str]
    second: NotRequired[float]


class TermsChange(TypedDict):
    max: NotRequired[int]
    region: NotRequired[str]
    second: NotRequired[float]


class TestRequest(TypedDict):
    config: NotRequired[dict[str, Any]]


class TokenRule(TypedDict):
    audiences: Union[list[str], None]
    issuer: str


class Usage(TypedDict):
    usage: list[UsageLine]


class UsageLine(TypedDict):
    cost: NotRequired[float]
    cpu_ms: float
    day: str
    egress_bytes: int
    execution_ms: float
    executions: int
    gib_seconds: float
    label: NotRequired[str]
    stored_bytes: NotRequired[int]
    tenant: str
    value: NotRequired[str]


class Version(TypedDict):
    version: str


class Volume(TypedDict):
    created: str
    id: str
    name: str
    size: int
    used: int


class VolumeAttributesRequest(TypedDict):
    gid: NotRequired[int]
    mode: NotRequired[int]
    path: str
    uid: NotRequired[int]


class VolumeDirRequest(TypedDict):
    force: NotRequired[bool]
    gid: NotRequired[int]
    mode: NotRequired[int]
    path: str
    uid: NotRequired[int]


class VolumeEntries(TypedDict):
    entries: list[VolumeEntry]


class VolumeEntry(TypedDict):
    accessed: str
    changed: str
    gid: int
    mode: int
    modified: str
    name: str
    path: str
    size: int
    target: NotRequired[str]
    type: str
    uid: int


class VolumeMount(TypedDict):
    id: NotRequired[str]
    name: str
    path: str
    read_only: NotRequired[bool]


class VolumeRequest(TypedDict):
    name: str
    size: NotRequired[Union[int, str]]


class Volumes(TypedDict):
    volumes: list[Volume]


class WatchEnd(TypedDict):
    pass


class WatchingEvent(TypedDict):
    event: Literal["watching"]


class Webhook(TypedDict):
    created: str
    enabled: bool
    events: list[str]
    failing_since: NotRequired[str]
    id: str
    labels: NotRequired[dict[str, str]]
    name: str
    updated: str
    url: str


class WebhookChange(TypedDict):
    enabled: NotRequired[bool]
    events: NotRequired[list[str]]
    name: NotRequired[str]
    secret: NotRequired[str]
    url: NotRequired[str]


class WebhookRequest(TypedDict):
    enabled: NotRequired[bool]
    events: NotRequired[list[str]]
    labels: NotRequired[dict[str, str]]
    name: str
    secret: str
    url: str


class Webhooks(TypedDict):
    webhooks: list[Webhook]


class Whoami(TypedDict):
    email: NotRequired[str]
    expires: NotRequired[str]
    grant_id: NotRequired[str]
    issuer: NotRequired[str]
    key_id: NotRequired[str]
    name: str
    role: Literal["viewer", "member", "admin", "operator"]
    sandboxes: NotRequired[list[str]]
    scopes: NotRequired[list[str]]
    session_id: NotRequired[str]
    subject: NotRequired[str]
    tenant: str
    tokens: NotRequired[TokenRule]


class Workspace(TypedDict):
    created: str
    head: NotRequired[WorkspaceVersion]
    id: str
    name: str
    store: str


class WorkspaceChange(TypedDict):
    kind: str
    path: str
    size: int
    type: str


class WorkspaceCommit(TypedDict):
    captured: NotRequired[list[WorkspaceFile]]
    changed: int
    changes: list[WorkspaceChange]
    error: NotRequired[ProgramError]
    name: str
    passed: int
    skipped: list[WorkspaceSkip]
    version: NotRequired[WorkspaceVersion]


class WorkspaceDiff(TypedDict):
    changes: list[WorkspaceChange]


class WorkspaceFile(TypedDict):
    mode: str
    path: str
    size: int
    target: NotRequired[str]
    type: str


class WorkspaceFiles(TypedDict):
    files: list[WorkspaceFile]


class WorkspaceRequest(TypedDict):
    name: str


class WorkspaceSkip(TypedDict):
    path: str
    reason: str


class WorkspaceUse(TypedDict):
    capture: NotRequired[list[str]]
    id: NotRequired[str]
    mode: NotRequired[Literal["read_only", "overlay", "direct"]]
    name: str
    prefixes: NotRequired[list[str]]
    version: NotRequired[int]


class WorkspaceVersion(TypedDict):
    actor: str
    base: int
    captured: NotRequired[int]
    captured_size: NotRequired[int]
    created: str
    digest: str
    files: int
    number: int
    restored: NotRequired[int]
    sandbox: NotRequired[str]
    size: int


class WorkspaceVersions(TypedDict):
    versions: list[WorkspaceVersion]


class Workspaces(TypedDict):
    workspaces: list[Workspace]


class ChangeEvent(Change):
    event: Literal["change"]


class CodeAnswerResultEvent(CodeAnswer):
    event: Literal["result"]


class CodestartedEvent(CodeStarted):
    event: Literal["code_started"]


class Descriptor3Event(Chunk):
    event: Literal["descriptor3"]


class ErrorEvent(ErrorAnswer):
    event: Literal["error"]


class ExceptionEvent(Exception):
    event: Literal["exception"]


class ImageResultEvent(Image):
    event: Literal["result"]


class LineEvent(TemplateBuildLine):
    event: Literal["line"]


class LogEndResultEvent(LogEnd):
    event: Literal["result"]


class LogEvent(Chunk):
    event: Literal["log"]


class OutputEvent(Rich):
    event: Literal["output"]


class ProgressEvent(Progress):
    event: Literal["progress"]


class ResultResultEvent(Result):
    event: Literal["result"]


class RunAnswerResultEvent(RunAnswer):
    event: Literal["result"]


class StartedEvent(Started):
    event: Literal["started"]


class StderrEvent(Chunk):
    event: Literal["stderr"]


class StdoutEvent(Chunk):
    event: Literal["stdout"]


class TemplateBuildLogResultEvent(TemplateBuildLog):
    event: Literal["result"]


class WatchEndResultEvent(WatchEnd):
    event: Literal["result"]

CodeAnswerEvent = Union[CodestartedEvent, StdoutEvent, StderrEvent, OutputEvent, ExceptionEvent, PingEvent, CodeAnswerResultEvent, ErrorEvent]

ImageEvent = Union[ProgressEvent, PingEvent, ImageResultEvent, ErrorEvent]

LogEndEvent = Union[LogEvent, PingEvent, LogEndResultEvent, ErrorEvent]

ResultEvent = Union[StartedEvent, StdoutEvent, StderrEvent, Descriptor3Event, PingEvent, ResultResultEvent, ErrorEvent]

RunAnswerEvent = Union[StartedEvent, StdoutEvent, StderrEvent, Descriptor3Event, PingEvent, RunAnswerResultEvent, ErrorEvent]

TemplateBuildLogEvent = Union[LineEvent, PingEvent, TemplateBuildLogResultEvent, ErrorEvent]

WatchEndEvent = Union[WatchingEvent, ChangeEvent, PingEvent, WatchEndResultEvent, ErrorEvent]
