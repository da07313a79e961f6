// @ts-check
// The interface of a drawn item, and of the card around it.

/**
 * The common context of one card's items.
 * @typedef {object} CardContext
 * @property {import("../store.js").Store} store
 * @property {AbortSignal} signal
 * @property {() => string} id a new unique id
 * @property {() => number} clock a clock in milliseconds that never goes back
 * @property {(item: import("../wire.js").FormItem) => void} answered an answer of this view was accepted
 * @property {(item: import("../wire.js").FormItem) => import("./form.js").FormView} form the form for a table:
 * the one that was shown separately, or a new one
 * @property {(item: import("../wire.js").MessageItem) => void} edit takes a message into the box, to edit it
 * @property {(title: string, typed: import("../wire.js").Fact[]) => void} unsent shows the unsent input of a
 * question that was settled elsewhere
 * @property {(key: string) => void} show scrolls to the row of a call, and gives it the focus
 * @property {(message: string) => void} say announces it to screen readers
 */
/**
 * A drawn item: one element that follows its data.
 * @template {import("../wire.js").Item|import("./grouping.js").Placed} T
 * @typedef {object} DrawnItem
 * @property {HTMLElement} el
 * @property {(item: T) => void} update
 * @property {() => void} [remove] called once, when it leaves the page
 * @property {() => void} [tick] called every second
 * @property {() => void} [enter] puts the focus on a question that waits
 */
export {};
