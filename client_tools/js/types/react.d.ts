/** A hook for React. */
import { createUseChat } from "./hook.js";
/**
 * Hook for a chat: `const { entries, status, owed, error, send, decide, answer, stop } =
 * useChat(client)`.
 */
export declare const useChat: (client: import("./hook.js").Client, options?: import("./hook.js").ChatOptions) => import("./hook.js").ChatView;
export { createUseChat };
