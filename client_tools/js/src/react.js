/** A hook for React. */

import { useCallback, useRef, useSyncExternalStore } from "react";

import { createUseChat } from "./hook.js";

/**
 * Hook for a chat: `const { entries, status, owed, error, send, decide, answer, stop } =
 * useChat(client)`.
 */
export const useChat = createUseChat({ useCallback, useRef, useSyncExternalStore });
export { createUseChat };
