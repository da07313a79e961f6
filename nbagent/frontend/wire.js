// @ts-check
// The wire between kernel and page: the shapes of ../notebook/wire.py, field by field.
// ../../tests/fixtures/wire.json holds an example of each that both ends check.

/** @typedef {"queued"|"running"|"interrupted"|"completed"|"failed"|"cancelled"} RunStatus */
/** @typedef {"preparing"|"running"|"waiting"|"done"|"failed"|"rejected"|"cancelled"} CallState */
/** @typedef {{label: string, value: string, code: boolean, changed_from: string|null, parts?: string[], remark?: string, html?: string}} Fact */
/** @typedef {{kind: "html"|"image"|"text"|"links", data: string, alt: string}} Rich */
/** @typedef {{fraction: number|null, text: string}} Progress */

/** @typedef {{type: "text", key: string, blocks: string[], tail: string, raw: string}} TextItem */
/** @typedef {{type: "reasoning", key: string, text: string}} ReasoningItem */
/**
 * @typedef {object} CallItem
 * @property {"call"} type
 * @property {string} key
 * @property {string} name
 * @property {string} path
 * @property {string} brief
 * @property {CallState} state
 * @property {Fact[]} input
 * @property {number|null} started_at
 * @property {number|null} elapsed
 * @property {Progress|null} progress
 * @property {string} printed
 * @property {Rich[]} outputs
 * @property {string|null} result
 * @property {string} [traceback] of the error that the tool raised
 * @property {RecordItem[]} [decisions] the decisions on its own questions; the row shows the last one
 */
/**
 * @typedef {object} Action
 * @property {"submit"|"approve"|"reject"|"answer"} name
 * @property {string} label
 * @property {boolean} [menu] whether its button is in the menu
 * @property {string|null} changed_label
 * @property {boolean} primary
 * @property {boolean} danger
 * @property {boolean} reason
 * @property {string} [help]
 */
/**
 * The form for a result that a person gives instead of running the call.
 * @typedef {object} Instead
 * @property {{root: import("./fields/spec.js").SpecNode}} spec
 * @property {import("./fields/spec.js").Draft} drafts
 */
/**
 * The values of one input in many questions; values are with the number of questions that have each.
 * @typedef {{name: string, text: string, values: [string, number][], bars: number[], listed: [string, number][], more: number}} Spread
 */
/** What one answer to many questions covers. @typedef {{n: number, inputs: Spread[]}} Covers */
/**
 * @typedef {object} FormItem
 * @property {"form"} type
 * @property {string} key
 * @property {string} interrupt
 * @property {string} call
 * @property {string} tool
 * @property {string} path
 * @property {string} title
 * @property {string|null} note
 * @property {Fact[]} facts
 * @property {{root: import("./fields/spec.js").SpecNode}|null} spec
 * @property {import("./fields/spec.js").Draft} drafts
 * @property {string} [named] a description of the fields, if the title has none
 * @property {Instead|null} [instead]
 * @property {Action[]} actions
 * @property {{id: string, label: string, help?: string}[]} remember
 * @property {Rich[]} [preview]
 * @property {string|null} [preview_note]
 * @property {string|null} [preview_error]
 * @property {boolean} approval
 * @property {number|null} expires_at
 * @property {string} group
 * @property {string[]} [look]
 * @property {Covers|null} [covers]
 * @property {Fact[]} input
 */
/**
 * @typedef {object} RecordItem
 * @property {"record"} type
 * @property {string} key
 * @property {string} title
 * @property {string} decision
 * @property {"good"|"bad"|"plain"} tone
 * @property {Fact[]} details
 * @property {number|null} after
 */
/** @typedef {{name: "stop"|"show"|"take"|"leave"|"go_on"|"notify"|"quiet"|"blocked"|"edit"|"shorten", label: string}} NoticeAction */
/** @typedef {{type: "notice", key: string, tone: "bad"|"warn"|"plain", text: string, actions: NoticeAction[], until: number|null}} NoticeItem */
/** @typedef {{type: "message", key: string, text: string, note: string, files: Rich[], editable: boolean}} MessageItem */
/** @typedef {TextItem|ReasoningItem|CallItem|FormItem|RecordItem|NoticeItem|MessageItem} Item */

/** @typedef {{lane: "model"|"tool"|"inner"|"wait", start: number, end: number|null, key?: string}} Span */
/**
 * @typedef {object} Head
 * @property {string} run
 * @property {string} agent
 * @property {string} prompt
 * @property {RunStatus} status
 * @property {string} status_text
 * @property {number} started_at
 * @property {{text: string, about: string}[]} counts
 * @property {number} questions
 * @property {boolean} [signing_in]
 * @property {boolean} stopping
 * @property {boolean} chat
 * @property {boolean} [asks] whether it has ended and takes a follow-up question
 * @property {Span[]} spans
 * @property {{text: string, state: "done"|"now"|"open"}[]} [plan]
 */
/** @typedef {{head: Head, items: Item[]}} View */

/** @typedef {{op: "put", item: Item, index: number}} Put */
/** @typedef {{op: "remove", key: string}} Remove */
/** @typedef {{op: "raw", key: string, text: string}} Raw */
/** @typedef {{op: "block", key: string, start: number, end: number, html: string, ends: number[], raw: string}} Block */
/** @typedef {{op: "print", key: string, text: string}} Print */
/** @typedef {{op: "head", head: Head}} SetHead */
/** @typedef {Put|Remove|Raw|Block|Print|SetHead} Op */

/** @typedef {{id: string, name: string, size: number}} Attached */
/** @typedef {{type: "snapshot", seq: number, view: View, now: number, texts: Record<string, string>, written: string, attached: Attached[]}} Snapshot */
/** @typedef {{type: "patch", seq: number, ops: Op[]}} Patch */
/** @typedef {{field: string|null, message: string, cells?: [row: number, key: string, message: string][]}} FieldError */
/** @typedef {{type: "receipt", submission: string, interrupt: string, ok: boolean, errors: FieldError[]}} Receipt */
/** Text, or its place in the style sheet, or the item whose text it is. @typedef {string|[number, number]|{key: string}} Piece */
/** @typedef {{type: "keep", view: string, number: number, bundle: Record<string, Piece[]>, seq: number|null, ended: boolean, over: boolean}} Keep */
/** @typedef {{name: string, about: string}} Name */
/** @typedef {{type: "names", text: string, names: Name[]}} Names */
/** @typedef {{type: "copied", key: string, text: string}} Copied */
/** @typedef {Snapshot|Patch|Receipt|Names|Copied|Keep} FromKernel */

/** @typedef {{type: "hello", keeps: boolean, stays: boolean, again: boolean}} Hello */
/**
 * @typedef {object} Answer
 * @property {"answer"} type
 * @property {string} interrupt
 * @property {string} submission
 * @property {Action["name"]} action
 * @property {import("./fields/spec.js").Draft} drafts
 * @property {string|null} reason
 * @property {string|null} remember
 */
/** @typedef {{type: "drafts", interrupt: string, drafts: import("./fields/spec.js").Draft|string, instead?: boolean}} Drafts */
/** @typedef {{type: "press", notice: string, action: NoticeAction["name"]}} Press */
/** @typedef {{type: "stop"}} Stop */
/** @typedef {{type: "retry"}} Retry */
/** @typedef {{type: "focus", busy: boolean, opened: string[]}} Focus */
/** @typedef {{type: "keeps", ended: boolean}} Keeps */
/** @typedef {{name: string, media_type: string, data: string}} SaidFile */
/** @typedef {{type: "attach", id: string, file: SaidFile|null}} Attach */
/** @typedef {{type: "say", submission: string, text: string, files: string[], instead: string|null, keep: number[]}} Say */
/** @typedef {{type: "complete", text: string}} Complete */
/** @typedef {{type: "copy", key: string}} Copy */
/** @typedef {Hello|Answer|Drafts|Press|Stop|Retry|Focus|Attach|Say|Complete|Copy|Keeps} FromFrontEnd */

/**
 * The part of JupyterLab's kernel connection that the card uses.
 * @typedef {object} Kernel
 * @property {KernelSignal} [statusChanged]
 * @property {KernelSignal} [disposed] the page has released it, as after a shutdown
 * @property {(about: {target_name: string}) => Promise<{content: {comms?: object}}>} [requestCommInfo]
 */
/** @typedef {{connect: (slot: KernelSlot) => void, disconnect: (slot: KernelSlot) => void}} KernelSignal */
/** @typedef {(kernel: Kernel, status: string) => void} KernelSlot */

/**
 * The part of a notebook in JupyterLab that the card uses.
 * @typedef {object} Notebook
 * @property {{connect: (slot: SaveSlot) => void, disconnect: (slot: SaveSlot) => void}} [saveState]
 * @property {{cells: Iterable<CodeCell> & {length: number}, dirty: boolean, collaborative?: boolean}} model
 */
/** @typedef {(context: unknown, state: string) => void} SaveSlot */
/**
 * A cell; `outputs` is undefined unless it is a code cell.
 * @typedef {object} CodeCell
 * @property {{length: number, get: (index: number) => Output, set: (index: number, output: object) => void}} outputs what is shown
 * @property {{updateOutputs: (start: number, end: number, outputs: object[], origin: string) => void}} sharedModel what is saved
 */
/** @typedef {{data: Record<string, any>, metadata: Record<string, any>, toJSON: () => object}} Output */

/**
 * The part of anywidget's model that the card uses.
 * @typedef {object} Model
 * @property {(name: string) => any} get
 * @property {(name: string, value: any) => void} set
 * @property {(event: string, callback: (...args: any[]) => void) => void} on
 * @property {(event: string, callback: (...args: any[]) => void) => void} off
 * @property {(content: FromFrontEnd) => void} send
 * @property {{kernel?: Kernel, context?: Notebook, get_model?: (id: string) => Promise<any>}} [widget_manager] Jupyter's widget manager, if there is one
 */

export {};
