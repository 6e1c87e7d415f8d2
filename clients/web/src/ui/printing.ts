/** Whether the content is rendered for print: nothing can be expanded there or rendered later. */
import { createContext } from "react";

export const PaperContext = createContext(false);
