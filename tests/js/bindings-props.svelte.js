/** Changes of these are seen by the component of Svelte. */
export const props = $state({ client: undefined, conversationId: undefined });
