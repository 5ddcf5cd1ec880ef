/**
 * Parameters of a tool as a schema of a library that implements Standard Schema and Standard JSON
 * Schema (https://standardschema.dev): declared to the server as JSON Schema, and applied to the
 * arguments of each call. No library is imported. The types also read plain JSON Schema.
 */
export type StandardSchema<Output = unknown> = {
    readonly "~standard": {
        readonly version: 1;
        readonly vendor: string;
        readonly validate: (value: unknown) => Validated<Output> | Promise<Validated<Output>>;
        readonly types?: {
            readonly input: unknown;
            readonly output: Output;
        } | undefined;
        readonly jsonSchema: {
            readonly input: (options: ConversionOptions) => Record<string, unknown>;
        };
    };
};
export type ConversionOptions = {
    target: "draft-2020-12";
    libraryOptions?: Record<string, unknown>;
};
export type Validated<Output> = {
    readonly value: Output;
    readonly issues?: undefined;
} | {
    readonly issues: readonly Issue[];
};
export type Issue = {
    readonly message: string;
    readonly path?: readonly (PropertyKey | {
        readonly key: PropertyKey;
    })[] | undefined;
};
export type JsonSchema = {
    readonly [keyword: string]: unknown;
};
export type ToolParameters = StandardSchema | JsonSchema;
export type Known<P> = P extends {
    readonly "~standard": {
        readonly types?: Types<infer O>;
        readonly jsonSchema: unknown;
    };
} ? O : P extends {
    readonly "~standard": unknown;
} ? unknown : Described<P>;
export type Types<Output> = {
    readonly output: Output;
} | undefined;
export type Described<S> = S extends {
    readonly const: infer V;
} ? V : S extends {
    readonly enum: readonly (infer V)[];
} ? V : S extends {
    readonly type: readonly (infer T)[];
} ? OfType<T, S> : S extends {
    readonly type: infer T;
} ? OfType<T, S> : unknown;
export type OfType<T, S> = T extends "string" ? string : T extends "number" | "integer" ? number : T extends "boolean" ? boolean : T extends "null" ? null : T extends "array" ? ListOf<S> : T extends "object" ? ObjectOf<S> : unknown;
export type ListOf<S> = S extends {
    readonly prefixItems: unknown;
} ? unknown[] : S extends {
    readonly items: infer I;
} ? Described<I>[] : unknown[];
export type ObjectOf<S> = S extends {
    readonly properties: infer P;
} ? string extends keyof P ? Record<string, unknown> : Flat<Fields<P, RequiredOf<S>>> : Record<string, unknown>;
export type Fields<P, R> = {
    -readonly [K in keyof P as K extends R ? K : never]: Described<P[K]>;
} & {
    -readonly [K in keyof P as K extends R ? never : K]?: Described<P[K]>;
};
export type RequiredOf<S> = S extends {
    readonly required: readonly (infer R)[];
} ? string extends R ? never : R : never;
export type Flat<T> = {
    [K in keyof T]: T[K];
};
/**
 * @param {unknown} value
 * @returns {value is StandardSchema} perhaps one without `jsonSchema`
 */
export declare function isStandardSchema(value: unknown): value is StandardSchema;
/**
 * @param {string} name of the tool
 * @param {ToolParameters | undefined} parameters
 * @returns {JsonSchema | undefined} the parameters as they are declared to the server
 * @throws {InvalidArgument} the library cannot convert them, or the server refuses them
 */
export declare function declaredParameters(name: string, parameters: ToolParameters | undefined): JsonSchema | undefined;
/**
 * @param {ToolParameters | undefined} parameters
 * @param {unknown} args
 * @returns {Promise<any>} what the schema makes of the arguments; unchanged if it is a JSON Schema,
 *   which the server has checked
 * @throws {Error} they do not fit; for the model
 */
export declare function validArguments(parameters: ToolParameters | undefined, args: unknown): Promise<any>;
