// @ts-check
// The interface of a drawn item, and of the card around it.

/** @import { Store } from "../store.js" */
/** @import { CallItem, Fact, FormItem, Item, MessageItem } from "../wire.js" */
/** @import { FormView } from "./form.js" */
/** @import { Placed } from "./grouping.js" */

/**
 * The common context of one card's items.
 * @typedef {object} CardContext
 * @property {Store} store
 * @property {AbortSignal} signal
 * @property {() => string} id a new unique id
 * @property {() => number} clock a clock in milliseconds that never goes back
 * @property {(item: FormItem) => void} answered an answer of this view was accepted
 * @property {(item: FormItem) => FormView} form the form for a table: the one that was shown separately, or a new one
 * @property {(item: CallItem) => HTMLElement} row the row of a call in a stretch: its earlier row, or a new one
 * @property {(item: MessageItem) => void} edit takes a message into the box, to edit it
 * @property {(title: string, typed: Fact[]) => void} unsent shows the unsent input of a question that was settled elsewhere
 * @property {(key: string) => void} show scrolls to the row of a call, and gives it the focus
 * @property {(message: string) => void} say announces it to screen readers
 */
/**
 * A drawn item: one element that follows its data.
 * @template {Item|Placed} T
 * @typedef {object} DrawnItem
 * @property {HTMLElement} el
 * @property {(item: T) => void} update
 * @property {() => void} [remove] called once, when it leaves the page
 * @property {() => void} [tick] called every second
 * @property {() => void} [enter] puts the focus on a question that waits
 */
/**
 * Draws a new item.
 * @template {Item|Placed} T
 * @typedef {(first: T, card: CardContext) => DrawnItem<T>} DrawItem
 */
export {};
