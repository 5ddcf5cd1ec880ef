/** A hook for React. */
import { createUseChat } from "./hook.js";
/** A chat as React shows it: `const { entries, status, error, send, stop } = useChat(client)`. */
export declare const useChat: (client: import("./hook.js").Client, options?: import("./hook.js").ChatOptions) => import("./hook.js").ChatView;
export { createUseChat };
